//! The arguments of `search_tapes`, and their conversion to a query.

use jiff::tz::TimeZone;
use schemars::JsonSchema;
use scrubjay_core::exchange::ExchangeKind;
use scrubjay_core::query::{
    Conditions, DayEdge, FieldFilter, LIMIT_MAX, QueryProblem, SearchQuery, SearchTerm, SortField, SortOrder,
    ValueTest, field_path, moment, parse,
};
use scrubjay_tape::clock;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::reply::Failure;

/// The most items of a list: each becomes a condition of the query.
const ITEMS_MAX: usize = 100;
/// The longest text in a list, in characters.
const ITEM_CHARS_MAX: usize = 1024;
/// The most steps of a path to a field.
const STEPS_MAX: usize = 32;

/// The names of this tool. Earlier searches are on tape, too. They contain the words that they searched for, so they would
/// match every repeated search; they are left out.
const OWN_SEARCHES: [&str; 2] = ["search_tapes", "*__search_tapes"];

// Unknown arguments are refused: a filter that is ignored would make the answer wider than what was asked for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SearchArgs {
    /// A query in short form. Words are searched in the text; "quoted words" must follow each other, rea* is a
    /// prefix. Filters: tool:read_file method:tools/* name: type:stderr server: session: tape:latest via: rule:
    /// tag: error:true code:-32601 >0.5ms <2s tokens:>5000 since:yesterday until:2026-11-01 arg.path=/etc/hosts
    /// arg.files[0].size>2 result.content.*.text~refused error.message~denied sort:took limit:50 offset:20.
    /// A - in front negates a filter or a word; OR joins its neighbours: a OR b; ( ) group.
    /// The other arguments narrow the search further.
    pub(super) query: Option<String>,
    /// Only from this time on: a time like 2026-01-31T09:00:00Z, a day, today, yesterday, or an age: 2d, 30m.
    from: Option<String>,
    /// Only before this time; a day is included as a whole.
    to: Option<String>,
    /// Messages with one of these methods; * matches anything.
    methods: Vec<String>,
    /// Calls of one of these tools; * matches anything.
    tools: Vec<String>,
    /// Messages about one of these tools, prompts or resources; * matches anything.
    names: Vec<String>,
    /// Only these types of messages: request, response, error, notification, batch, opaque, stderr, too_long, gap,
    /// end, note, original: changed by rules.
    message_types: Vec<String>,
    /// In one of these sessions, each given by its id or a prefix of it.
    session_ids: Vec<String>,
    /// On one of these tapes, each given by its id, a prefix of it, or latest.
    tapes: Vec<String>,
    /// On connections with one of these names.
    servers: Vec<String>,
    /// Passed to one of these backends.
    via: Vec<String>,
    /// Messages to which one of these rules applied; * matches anything.
    rules: Vec<String>,
    /// Messages with one of these tags, which rules give; * matches anything.
    tags: Vec<String>,
    /// Texts that a message must all contain, each word for word; one that ends with * is a prefix.
    text: Vec<String>,
    /// Conditions on fields of the parameters.
    param_filters: Vec<FilterArgs>,
    /// Conditions on fields of the result.
    result_filters: Vec<FilterArgs>,
    /// Conditions on fields of the error: message, code, data.
    error_filters: Vec<FilterArgs>,
    /// Only failures with one of these codes.
    error_codes: Vec<i64>,
    /// Only what failed (true), or only what did not (false).
    has_errors: Option<bool>,
    /// The shortest response time, in milliseconds.
    min_response_time_ms: Option<f64>,
    /// The longest response time, in milliseconds.
    max_response_time_ms: Option<f64>,
    /// The fewest tokens of request and answer together (estimated). Not to be confused with max_tokens, which limits the
    /// answer to this search.
    min_size_tokens: Option<u64>,
    /// The most tokens of request and answer together.
    max_size_tokens: Option<u64>,
    /// How many matches to skip: next_offset of the previous page.
    offset: Option<usize>,
    /// The most matches to list; 20 by default, 1000 at most.
    limit: Option<usize>,
    /// The order; time by default.
    sort_by: Option<SortBy>,
    /// The direction; by default the newest, slowest or largest first.
    sort_order: Option<Order>,
    /// About how many tokens the answer may have; 4000 by default. Hits that do not fit are on the next page.
    pub(super) max_tokens: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterArgs {
    /// The path of the field, like arguments.path, files[0].path or content.*.text: keys, list indices, * for any.
    field: String,
    /// The test: whether the field exists, or how it compares with value.
    test: FieldTest,
    /// The value to compare with; not needed for exists.
    #[serde(default)]
    #[schemars(schema_with = "compared_value")]
    value: Option<Value>,
}

/// The schema of the value: model APIs require named types.
fn compared_value(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "number" }, { "type": "boolean" }] })
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FieldTest {
    Exists,
    Equals,
    Contains,
    Greater,
    Less,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SortBy {
    Time,
    ResponseTime,
    Size,
    Tokens,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    Descending,
    Ascending,
}

impl SearchArgs {
    /// Converts the arguments to a query; the failure names all problems.
    pub(super) fn to_query(&self) -> Result<SearchQuery, Failure> {
        let now_ns = clock::now().wall_ns;
        let mut query = self.short_form(now_ns)?;
        self.check()?;
        // In UTC, as all times in the answers are.
        let time = |text: &Option<String>, edge| match text {
            None => Ok(None),
            Some(text) => moment(text, now_ns, &TimeZone::UTC, edge).map(Some).map_err(|expected| {
                Failure::new("INVALID_TIME", format!("\"{text}\" is not a time"), format!("Give {expected}."))
            }),
        };
        let asked = &mut query.conditions;
        // A single condition replaces that of the short form, a list is added to it.
        asked.from_ns = time(&self.from, DayEdge::Start)?.or(asked.from_ns);
        asked.to_ns = time(&self.to, DayEdge::End)?.or(asked.to_ns);
        let names = [
            (&mut asked.methods, &self.methods),
            (&mut asked.tools, &self.tools),
            (&mut asked.names, &self.names),
            (&mut asked.sessions, &self.session_ids),
            (&mut asked.tapes, &self.tapes),
            (&mut asked.servers, &self.servers),
            (&mut asked.via, &self.via),
            (&mut asked.rules, &self.rules),
            (&mut asked.tags, &self.tags),
        ];
        for (all, more) in names {
            all.extend(more.iter().cloned());
        }
        asked.types.extend(self.types()?);
        asked.text.extend(self.terms()?);
        asked.params.extend(filters(&self.param_filters)?);
        asked.results.extend(filters(&self.result_filters)?);
        asked.errors.extend(filters(&self.error_filters)?);
        asked.error_codes.extend(&self.error_codes);
        asked.has_errors = self.has_errors.or(asked.has_errors);
        asked.min_response_ns = nanoseconds(self.min_response_time_ms)?.or(asked.min_response_ns);
        asked.max_response_ns = nanoseconds(self.max_response_time_ms)?.or(asked.max_response_ns);
        asked.min_tokens = self.min_size_tokens.or(asked.min_tokens);
        asked.max_tokens = self.max_size_tokens.or(asked.max_tokens);
        let is_about = |part: &&Conditions| {
            part.tools.iter().chain(&part.names).any(|name| name.contains("search_tapes"))
        };
        // A query about this very tool does find its searches.
        if !asked.parts().iter().any(is_about) {
            asked.none_of.push(Conditions {
                tools: OWN_SEARCHES.map(str::to_owned).to_vec(),
                ..Conditions::default()
            });
        }
        query.offset = self.offset.unwrap_or(query.offset);
        query.limit = self.limit.unwrap_or(query.limit).clamp(1, LIMIT_MAX);
        self.order(&mut query);
        Ok(query)
    }

    fn short_form(&self, now_ns: u64) -> Result<SearchQuery, Failure> {
        let text = self.query.as_deref().unwrap_or_default();
        parse(text, now_ns, &TimeZone::UTC).map_err(|error| {
            let part = text.get(error.at.clone()).unwrap_or_default();
            let details = json!({ "part": part, "from": error.at.start, "to": error.at.end });
            let hint = "Correct this part of query, or use the other arguments instead.";
            Failure::new("INVALID_QUERY", error.to_string(), hint).with(details)
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let lists = [
            &self.methods,
            &self.tools,
            &self.names,
            &self.message_types,
            &self.session_ids,
            &self.tapes,
            &self.servers,
            &self.via,
            &self.rules,
            &self.tags,
            &self.text,
        ];
        let longest = lists.iter().map(|list| list.len()).max().unwrap_or(0);
        let filters = self.param_filters.len().max(self.result_filters.len()).max(self.error_filters.len());
        let counts = [longest, filters, self.error_codes.len()];
        let is_long = |text: &String| text.chars().count() > ITEM_CHARS_MAX;
        if counts.iter().any(|count| *count > ITEMS_MAX) || lists.iter().any(|list| list.iter().any(is_long))
        {
            return Err(invalid(format!(
                "a list may have at most {ITEMS_MAX} items, and each at most {ITEM_CHARS_MAX} characters"
            )));
        }
        Ok(())
    }

    fn types(&self) -> Result<Vec<ExchangeKind>, Failure> {
        let one = |name: &String| {
            ExchangeKind::parse(name).ok_or_else(|| {
                Failure::new(
                    "INVALID_ARGUMENT",
                    format!("\"{name}\" is not a type of message"),
                    format!("Known types are {}.", ExchangeKind::NAMES),
                )
            })
        };
        self.message_types.iter().map(one).collect()
    }

    fn terms(&self) -> Result<Vec<SearchTerm>, Failure> {
        let one = |text: &String| {
            SearchTerm::of(text.clone()).map_err(|problem: QueryProblem| invalid(problem.to_string()))
        };
        self.text.iter().map(one).collect()
    }

    fn order(&self, query: &mut SearchQuery) {
        if let Some(by) = self.sort_by {
            query.sort = match by {
                SortBy::Time => SortField::Time,
                SortBy::ResponseTime => SortField::Took,
                SortBy::Size => SortField::Size,
                SortBy::Tokens => SortField::Tokens,
            };
        }
        if let Some(order) = self.sort_order {
            query.order = match order {
                Order::Descending => SortOrder::Descending,
                Order::Ascending => SortOrder::Ascending,
            };
        }
    }
}

fn invalid(message: String) -> Failure {
    Failure::new("INVALID_ARGUMENT", message, "Correct it and ask again.")
}

fn nanoseconds(ms: Option<f64>) -> Result<Option<u64>, Failure> {
    match ms {
        // 1e12 ms are 1e18 ns, which still fits into the 64 bits of the column.
        Some(ms) if !(0.0..=1e12).contains(&ms) => {
            Err(invalid(format!("{ms} is not a response time: give milliseconds from 0 to 1e12")))
        }
        Some(ms) => Ok(Some((ms * 1e6) as u64)),
        None => Ok(None),
    }
}

fn filters(all: &[FilterArgs]) -> Result<Vec<FieldFilter>, Failure> {
    all.iter().map(filter).collect()
}

fn filter(args: &FilterArgs) -> Result<FieldFilter, Failure> {
    let wrong = |expected: &str| invalid(format!("the filter of field \"{}\" needs {expected}", args.field));
    let path = field_path(&args.field).filter(|path| path.len() <= STEPS_MAX);
    let path = path.ok_or_else(|| wrong("a field like arguments.path, files[0].path or content.*.text"))?;
    let number = || args.value.as_ref().and_then(Value::as_f64).ok_or_else(|| wrong("a number as its value"));
    let test = match args.test {
        FieldTest::Exists => ValueTest::Exists,
        FieldTest::Equals => ValueTest::Equals(args.value.clone().ok_or_else(|| wrong("a value"))?),
        FieldTest::Contains => {
            let part =
                args.value.as_ref().and_then(Value::as_str).ok_or_else(|| wrong("a text as its value"))?;
            ValueTest::Contains(part.to_owned())
        }
        FieldTest::Greater => ValueTest::Greater(number()?),
        FieldTest::Less => ValueTest::Less(number()?),
    };
    Ok(FieldFilter { path, test })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_query(arguments: Value) -> Result<SearchQuery, Failure> {
        serde_json::from_value::<SearchArgs>(arguments).unwrap().to_query()
    }

    #[test]
    fn every_argument_becomes_a_condition() {
        let query = to_query(json!({
            "query": "tool:a old >5ms limit:7", "from": "2026-01-31", "to": "2026-01-31",
            "methods": ["m"], "tools": ["b"], "names": ["n"], "message_types": ["stderr"],
            "session_ids": ["s"], "tapes": ["t"], "servers": ["v"], "via": ["w"], "rules": ["r"], "tags": ["g"], "text": ["two words", "beg*"],
            "param_filters": [
                { "field": "arguments.path", "test": "equals", "value": "/x" },
                { "field": "a", "test": "exists" }, { "field": "b", "test": "greater", "value": 2 },
            ],
            "result_filters": [
                { "field": "c.*", "test": "contains", "value": "y" }, { "field": "d", "test": "less", "value": 1.5 },
            ],
            "error_filters": [{ "field": "data[0].x", "test": "exists" }],
            "error_codes": [-1], "has_errors": true, "min_response_time_ms": 1.5, "max_response_time_ms": 9,
            "min_size_tokens": 10, "max_size_tokens": 90,
            "offset": 3, "sort_by": "response_time", "sort_order": "ascending",
        }));
        let field = |path: &str, test: ValueTest| FieldFilter {
            path: path.split('.').map(str::to_owned).collect(),
            test,
        };
        let text = |text: &str| vec![text.to_owned()];
        let searches =
            Conditions { tools: OWN_SEARCHES.map(str::to_owned).to_vec(), ..Conditions::default() };
        let conditions = Conditions {
            from_ns: Some(1_769_817_600_000_000_000),
            to_ns: Some(1_769_817_600_000_000_000 + 86_400_000_000_000),
            methods: text("m"),
            tools: vec!["a".to_owned(), "b".to_owned()],
            names: text("n"),
            types: vec![ExchangeKind::Stderr],
            sessions: text("s"),
            tapes: text("t"),
            servers: text("v"),
            via: text("w"),
            rules: text("r"),
            tags: text("g"),
            text: vec![
                SearchTerm::Phrase("old".to_owned()),
                SearchTerm::Phrase("two words".to_owned()),
                SearchTerm::Prefix("beg".to_owned()),
            ],
            params: vec![
                field("arguments.path", ValueTest::Equals(json!("/x"))),
                field("a", ValueTest::Exists),
                field("b", ValueTest::Greater(2.0)),
            ],
            results: vec![
                field("c.*", ValueTest::Contains("y".to_owned())),
                field("d", ValueTest::Less(1.5)),
            ],
            errors: vec![field("data.0.x", ValueTest::Exists)],
            error_codes: vec![-1],
            has_errors: Some(true),
            min_response_ns: Some(1_500_000),
            max_response_ns: Some(9_000_000),
            min_tokens: Some(10),
            max_tokens: Some(90),
            any_of: Vec::new(),
            none_of: vec![searches],
        };
        let (sort, order) = (SortField::Took, SortOrder::Ascending);
        assert_eq!(query.unwrap(), SearchQuery { conditions, offset: 3, limit: 7, sort, order });
    }

    #[test]
    fn wrong_arguments_are_refused_with_a_code() {
        for (arguments, code) in [
            (json!({ "query": "tol:x" }), "INVALID_QUERY"),
            (json!({ "from": "someday" }), "INVALID_TIME"),
            (json!({ "query": "a OR" }), "INVALID_QUERY"),
            (json!({ "param_filters": [{ "field": "a[", "test": "exists" }] }), "INVALID_ARGUMENT"),
            (json!({ "message_types": ["mesage"] }), "INVALID_ARGUMENT"),
            (json!({ "text": ["---"] }), "INVALID_ARGUMENT"),
            (json!({ "min_response_time_ms": -1 }), "INVALID_ARGUMENT"),
            (json!({ "param_filters": [{ "field": "a..b", "test": "exists" }] }), "INVALID_ARGUMENT"),
            (
                json!({ "param_filters": [{ "field": "a", "test": "less", "value": "x" }] }),
                "INVALID_ARGUMENT",
            ),
            (json!({ "param_filters": [{ "field": "a", "test": "equals" }] }), "INVALID_ARGUMENT"),
            (json!({ "tools": vec!["x"; ITEMS_MAX + 1] }), "INVALID_ARGUMENT"),
            (json!({ "tools": ["x".repeat(ITEM_CHARS_MAX + 1)] }), "INVALID_ARGUMENT"),
        ] {
            assert_eq!(to_query(arguments.clone()).unwrap_err().code, code, "{arguments}");
        }
    }

    #[test]
    fn searches_are_left_out_unless_they_are_asked_for() {
        let left_out = |arguments| to_query(arguments).unwrap().conditions.none_of.len();
        assert_eq!(left_out(json!({})), 1);
        assert_eq!(left_out(json!({ "tools": ["search_tapes"] })), 0);
        assert_eq!(left_out(json!({ "query": "tool:a OR tool:search_tapes" })), 0);
    }
}
