//! What a client declared, as servers and checks read it.

use super::*;

fn facts(capabilities: &str) -> ClientFacts {
    ClientFacts { capabilities: capabilities.to_owned(), ..ClientFacts::default() }
}

#[test]
fn a_client_can_do_only_what_it_declared() {
    let check = |capabilities: &str, expected: bool| {
        assert_eq!(facts(capabilities).can("sampling"), expected, "{capabilities}");
    };
    check(r#"{"sampling":{}}"#, true);
    check(r#"{"sampling":{"tools":{}},"roots":{}}"#, true);
    check(r#"{"sampling":null}"#, false);
    check(r#"{"Sampling":{}}"#, false);
    check(r#"{"experimental":{"sampling":{}}}"#, false);
    check("{}", false);
    check("null", false);
    check(r#"["sampling"]"#, false);
    check(r#""sampling""#, false);
    check("not JSON", false);
}

#[test]
fn an_extension_is_declared_under_extensions_alone() {
    let check = |capabilities: &str, expected: bool| {
        assert_eq!(facts(capabilities).has_extension("a/b"), expected, "{capabilities}");
    };
    check(r#"{"extensions":{"a/b":{}}}"#, true);
    check(r#"{"extensions":{"a/b":null}}"#, false);
    check(r#"{"extensions":{"a":{"b":{}}}}"#, false);
    check(r#"{"extensions":["a/b"]}"#, false);
    check(r#"{"a/b":{}}"#, false);
    check("7", false);
}

#[test]
fn a_legacy_server_gets_the_capabilities_that_it_knows() {
    let check = |capabilities: &str, expected: &str| {
        assert_eq!(facts(capabilities).legacy_capabilities(), expected, "{capabilities}");
    };
    check(
        r#"{"roots":{"listChanged":true},"extensions":{"a/b":{}},"sampling":{}}"#,
        r#"{"roots":{"listChanged":true},"sampling":{}}"#,
    );
    check(r#"{"tasks":{}}"#, "{}");
    check("[]", "{}");
    check("not JSON", "{}");
}

#[test]
fn a_client_without_a_name_is_not_given_one() {
    assert_eq!(ClientFacts::default().named(), None);
    let info = r#"{"name":"host","version":"2"}"#;
    assert_eq!(ClientFacts { info: info.to_owned(), ..ClientFacts::default() }.named(), Some(info));
}
