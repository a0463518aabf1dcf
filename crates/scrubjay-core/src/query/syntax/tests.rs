//! Queries as people type them, and their meaning or the reason for their refusal.

use super::*;
use crate::exchange::ExchangeKind;
use crate::query::{FieldFilter, SearchTerm, SortField, SortOrder, ValueTest};
use serde_json::json;

const NOW: u64 = 1_800_000_000_000_000_000;

fn read(text: &str) -> SearchQuery {
    parse(text, NOW, &TimeZone::UTC).unwrap()
}

fn conditions(text: &str) -> Conditions {
    read(text).conditions
}

/// Returns the reason for which a query is refused, and the part that the error points at.
fn place(text: &str) -> String {
    let error = parse(text, NOW, &TimeZone::UTC).unwrap_err();
    text[error.at].to_owned()
}

fn refuses(text: &str, reason: &str) {
    let error = parse(text, NOW, &TimeZone::UTC).unwrap_err().to_string();
    assert!(error.contains(reason), "{text}: {error}");
}

#[test]
fn every_filter_can_be_typed() {
    let query = read(r#"tool:read_file error:true >500ms since:2d "connection refused" retry*"#);
    let expected = Conditions {
        tools: vec!["read_file".to_owned()],
        has_errors: Some(true),
        min_response_ns: Some(500_000_000),
        from_ns: Some(NOW - 2 * 86_400_000_000_000),
        text: vec![
            SearchTerm::Phrase("connection refused".to_owned()),
            SearchTerm::Prefix("retry".to_owned()),
        ],
        ..Conditions::default()
    };
    assert_eq!(query, SearchQuery { conditions: expected, ..SearchQuery::default() });
    let query = read(
        "type:stderr session:abc tape:xyz server:files code:-32601 error:7 rule:cap tag:slow* <2s sort:-took limit:5 offset:10 until:2026-11-01",
    );
    let expected = Conditions {
        types: vec![ExchangeKind::Stderr],
        sessions: vec!["abc".to_owned()],
        tapes: vec!["xyz".to_owned()],
        servers: vec!["files".to_owned()],
        error_codes: vec![-32601, 7],
        rules: vec!["cap".to_owned()],
        tags: vec!["slow*".to_owned()],
        max_response_ns: Some(2_000_000_000),
        to_ns: Some(1_793_491_200_000_000_000 + 86_400_000_000_000),
        ..Conditions::default()
    };
    let (sort, order) = (SortField::Took, SortOrder::Ascending);
    assert_eq!(query, SearchQuery { conditions: expected, sort, order, limit: 5, offset: 10 });
}

#[test]
fn fields_are_filtered() {
    let query = conditions(
        r#"param.name=read arg.path="/a b" arg.depth>2 arg.x arg.files[0].n=1 result.content[*].text~"no such" result.n<1.5 error.message~refused"#,
    );
    let filter = |path: &str, test: ValueTest| FieldFilter {
        path: path.split('.').map(str::to_owned).collect(),
        test,
    };
    assert_eq!(
        query.params,
        [
            filter("name", ValueTest::Equals(json!("read"))),
            filter("arguments.path", ValueTest::Equals(json!("/a b"))),
            filter("arguments.depth", ValueTest::Greater(2.0)),
            filter("arguments.x", ValueTest::Exists),
            filter("arguments.files.0.n", ValueTest::Equals(json!(1))),
        ]
    );
    assert_eq!(
        query.results,
        [
            filter("content.*.text", ValueTest::Contains("no such".to_owned())),
            filter("n", ValueTest::Less(1.5))
        ]
    );
    assert_eq!(query.errors, [filter("message", ValueTest::Contains("refused".to_owned()))]);
    assert_eq!(query.text, []);
}

#[test]
fn what_looks_like_a_filter_can_be_quoted() {
    let text = |text: &str| vec![SearchTerm::Phrase(text.to_owned())];
    for (typed, meant) in [
        ("\"nope:1\"", "nope:1"),
        ("https://x.org/a", "https://x.org/a"),
        ("read_file", "read_file"),
        (r#""say \"hi\"""#, "say \"hi\""),
        ("\"OR\"", "OR"),
        ("\"-32601\"", "-32601"),
        ("\"a)\"", "a)"),
        ("f(x)", "f(x)"),
        ("main.rs", "main.rs"),
        ("\"a=b\"", "a=b"),
        ("TypeError:x", "TypeError:x"),
        ("PATH=/x", "PATH=/x"),
        ("a->b", "a->b"),
        ("or", "or"),
    ] {
        assert_eq!(conditions(typed).text, text(meant), "{typed}");
    }
    assert_eq!(conditions("tool:\"a b\"").tools, ["a b"]);
    assert_eq!(read(""), SearchQuery::default());
}

fn text(text: &str) -> Conditions {
    Conditions { text: vec![SearchTerm::Phrase(text.to_owned())], ..Conditions::default() }
}

fn tool(tool: &str) -> Conditions {
    Conditions { tools: vec![tool.to_owned()], ..Conditions::default() }
}

fn not(one: Conditions) -> Conditions {
    Conditions { none_of: vec![one], ..Conditions::default() }
}

fn any(group: Vec<Conditions>) -> Conditions {
    Conditions { any_of: vec![group], ..Conditions::default() }
}

#[test]
fn a_minus_negates_words_filters_and_groups() {
    assert_eq!(conditions("-word"), not(text("word")));
    assert_eq!(conditions("-\"a phrase\""), not(text("a phrase")));
    assert_eq!(conditions("-tool:x*"), not(tool("x*")));
    let field = conditions("arg.path=/x");
    assert_eq!(conditions("-arg.path=/x"), not(field));
    assert_eq!(conditions("-error.message~no"), not(conditions("error.message~no")));
    assert_eq!(conditions("->500ms"), not(conditions(">500ms")));
    let tokens = |min_tokens, max_tokens| Conditions { min_tokens, max_tokens, ..Conditions::default() };
    assert_eq!(conditions("tokens:>5000 tokens:<=10k"), tokens(Some(5000), Some(10_000)));
    assert_eq!(conditions("tokens>=5000"), tokens(Some(5000), None));
    assert_eq!(conditions("-tokens:<20"), not(tokens(None, Some(20))));
    assert_eq!(read("sort:-tokens").sort, SortField::Tokens);
    let both = Conditions { none_of: vec![text("b"), tool("c")], ..text("a") };
    assert_eq!(conditions("a -b -tool:c"), both);
    assert_eq!(conditions("-(a tool:b)"), not(Conditions { text: text("a").text, ..tool("b") }));
}

#[test]
fn or_joins_its_neighbours() {
    assert_eq!(conditions("a OR b"), any(vec![text("a"), text("b")]));
    let narrowed = Conditions { tools: tool("t").tools, ..any(vec![text("a"), text("b")]) };
    assert_eq!(conditions("tool:t a OR b"), narrowed);
    assert_eq!(conditions("a OR b tool:t"), narrowed);
    assert_eq!(conditions("a OR -b OR tool:c"), any(vec![text("a"), not(text("b")), tool("c")]));
    let pairs = any(vec![
        Conditions { text: text("a").text, ..tool("x") },
        Conditions { text: text("b").text, ..tool("y") },
    ]);
    assert_eq!(conditions("(tool:x a) OR (tool:y b)"), pairs);
    assert_eq!(
        conditions("(a OR b) c"),
        Conditions { text: text("c").text, ..any(vec![text("a"), text("b")]) }
    );
    assert_eq!(conditions("((a) OR (b))"), any(vec![text("a"), text("b")]));
    // The lists of a group are not merged with those around it: both conditions must hold.
    assert_eq!(conditions("tool:x (tool:y)"), Conditions { any_of: vec![vec![tool("y")]], ..tool("x") });
}

#[test]
fn conditions_hold_as_their_parts_do() {
    // Parts: 0 all, 1 tool:a, 2 b, 3 around -tool:c, 4 tool:c, 5 d. Fields: arg.x, arg.y.
    let all = conditions("tool:a OR (b arg.x) OR -tool:c -(d arg.y)");
    assert_eq!((all.parts().len(), all.fields().len()), (6, 2));
    let check = |true_parts: &[usize], true_fields: &[usize], expected: bool| {
        let holds = all.hold(|part| true_parts.contains(&part), |field| true_fields.contains(&field));
        assert_eq!(holds, expected, "{true_parts:?} {true_fields:?}");
    };
    check(&[0, 1, 3, 4], &[], true);
    check(&[0, 2, 3, 4], &[0], true);
    check(&[0, 2, 3, 4], &[1], false);
    check(&[0, 3], &[], true);
    check(&[0, 3, 4], &[], false);
    check(&[0, 1, 3, 4, 5], &[1], false);
    check(&[0, 1, 3, 4, 5], &[0], true);
    check(&[1, 3, 4], &[], false);
}

#[test]
fn invalid_queries_are_refused_with_a_reason() {
    refuses("tol:read", "known are tool:");
    refuses("tol:read", "'\"tol:read\"'");
    refuses("-tol:read", "known are tool:");
    refuses("foo:bar", "no filter \"foo:\"");
    refuses("Tool:read", "tool:read");
    refuses("tool>3", "no filter \"tool>\"");
    refuses("path=/x", "quote it");
    refuses("args.path=/x", "no filter \"args.path=\"");
    refuses("type:mesage", "notification");
    refuses("error:maybe", "-32601");
    refuses("code:abc", "-32601");
    refuses(">fast", ">500ms");
    for wrong in ["tokens:5000", "tokens:>many", "tokens:>", "tokens:>5ms", "tokens=5", "tokens:"] {
        refuses(wrong, if wrong == "tokens:" { "missing" } else { "tokens:>5000" });
    }
    refuses(">5", ">500ms");
    refuses("since:tomorrow", "yesterday");
    refuses("until:", "missing");
    refuses("limit:0", "1 to 1000");
    refuses("limit:x", "1 to 1000");
    refuses("offset:-1", "a number");
    refuses("sort:name", "took");
    refuses("sort:", "took");
    refuses("-limit:5", "whole answer");
    refuses("a OR limit:5", "whole answer");
    refuses("(a sort:took)", "whole answer");
    refuses("arg.", "arg.path");
    refuses("arg.a[", "names no field");
    refuses("result.a[x]", "names no field");
    refuses("error.[0]", "names no field");
    refuses("arg.a>b", "not a number");
    refuses("arg.a>nan", "not a number");
    refuses("arg.a=", "missing");
    refuses("arg.a==3", "no others");
    refuses("arg.a>=3", "no others");
    refuses("tool:", "missing");
    refuses("rule:", "missing");
    refuses("\"open", "not closed");
    refuses("-\"open", "not closed");
    refuses("---", "letters");
    refuses("-", "letters");
    refuses("-32601", "code:-32601");
    refuses("--flag", "two minus");
    refuses("a AND b", "leave AND out");
    refuses("NOT a", "-word");
    refuses("OR", "missing");
    refuses("a OR", "missing");
    refuses("OR a", "missing");
    refuses("a OR OR b", "missing");
    refuses("(a OR ) b", "missing");
    refuses("(OR a)", "missing");
    refuses("(a", "no )");
    refuses("a)", "no (");
    refuses("( )", "nothing between");
    refuses("-()", "nothing between");
    refuses(&"x".repeat(5000), "4096");
    refuses(&"-x ".repeat(31), "more than 30");
    assert_eq!(conditions(&"-x ".repeat(30)).none_of.len(), 30);
}

#[test]
fn errors_point_at_their_position() {
    assert_eq!(place("größe  tol:read error:true"), "tol:read");
    assert_eq!(place("a tool:x \"open b"), "\"open b");
    assert_eq!(place("a tool:\"x\"\"open b"), "\"open b");
    assert_eq!(place("a  --- b"), "---");
    assert_eq!(place("tool:\"a b\" since:someday"), "since:someday");
    assert_eq!(place("a -tol:read b"), "-tol:read");
    assert_eq!(place("(größe OR b) OR"), "OR");
    assert_eq!(place("a (b (c)"), "(");
    assert_eq!(place("a -(b"), "-(");
    assert_eq!(place("ä b) c"), ")");
    assert_eq!(place("(tool>3)"), "tool>3");
    assert_eq!(place(&"x".repeat(5000)), "");
}

proptest::proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in r#"(?s)([a-z()\-":.\[\]<>=~ ]|OR |.){0,60}"#) {
        if let Err(error) = parse(&text, NOW, &TimeZone::UTC) {
            assert!(text.get(error.at).is_some());
        }
    }
}
