//! The query language: every text gives a query or an error with its position, and parentheses, spaces, `OR` and `-`
//! combine conditions as documented.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::tz::TimeZone;
use scrubjay_core::query::{Conditions, QueryError, QueryProblem, SearchQuery, parse};

const NOW_NS: u64 = 1_800_000_000_000_000_000;

/// Checks one query.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let query = match read(text) {
        Ok(query) => query,
        Err(error) => {
            assert!(text.get(error.at.clone()).is_some(), "{:?} is no place in {text:?}", error.at);
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(query, read(&format!("\t {text}  ")).expect("spaces around it change nothing"));
    assert!((1..=1000).contains(&query.limit));
    let conditions = query.conditions;
    assert_eq!(
        conditions.parts().len(),
        1 + conditions
            .any_of
            .iter()
            .flatten()
            .chain(&conditions.none_of)
            .map(|c| c.parts().len())
            .sum::<usize>()
    );
    // One form for each input, chosen by its text, so that a run stays fast.
    let seed = text.bytes().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let holds = holds(&conditions, seed);
    let (form, expected) = match seed % 4 {
        0 => (format!("( {text} )"), holds),
        1 => (format!("-( {text} )"), !holds),
        2 => (format!("( {text} ) OR ( {text} )"), holds),
        _ => (format!("( {text} ) ( {text} )"), holds),
    };
    match read(&form) {
        Ok(other) => assert_eq!(self::holds(&other.conditions, seed), expected, "{form:?}"),
        Err(error) => assert!(may_fail(&error.problem), "{form:?}: {error}"),
    }
}

fn read(text: &str) -> Result<SearchQuery, QueryError> {
    parse(text, NOW_NS, &TimeZone::UTC)
}

/// Tells whether a valid query may be invalid within parentheses: it has too many parts then, or sets the page.
fn may_fail(problem: &QueryProblem) -> bool {
    match problem {
        QueryProblem::Parenthesis(_) | QueryProblem::Long | QueryProblem::Parts => true,
        QueryProblem::Value(text) => text.contains("about the whole answer"),
        _ => false,
    }
}

/// Evaluates a query for an imaginary exchange: whether each condition holds is random, but the same for equal
/// conditions.
fn holds(conditions: &Conditions, seed: u64) -> bool {
    let parts = conditions.parts();
    let fields = conditions.fields();
    let part = |place: usize| {
        let own = Conditions {
            text: Vec::new(),
            params: Vec::new(),
            results: Vec::new(),
            errors: Vec::new(),
            any_of: Vec::new(),
            none_of: Vec::new(),
            ..parts[place].clone()
        };
        // Each term of the text is drawn separately, and an empty condition always holds.
        parts[place].text.iter().all(|term| random_truth(&format!("{term:?}"), seed))
            && (own == Conditions::default() || random_truth(&format!("{own:?}"), seed))
    };
    conditions.hold(part, |place| random_truth(&format!("{:?}", fields[place]), seed))
}

fn random_truth(what: &str, seed: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (what, seed).hash(&mut hasher);
    // Mostly true, so that queries of several words sometimes hold.
    hasher.finish() % 4 != 0
}
