//! `recorder.capture`, `filters`, `sampling` and `strategy`: which messages are kept, checked at start with the
//! place of whatever is wrong.

use std::time::Duration;

use scrubjay_core::glob::Glob;
use scrubjay_core::selection::{Always, Capture, Filters, PriorityRule, Sampling, Settings, Strategy};
use serde_json::{Value as Json, json};

use super::node::{Node, Origin, Value, below};
use super::problem::{Problem, entries};
use super::raw::{RawCapture, RawFilters, RawRecorder, RawSampling};
use super::resolve::taken;
use super::setting::{Choice, Count, Setting, Shown, Span, items, parse, texts, write_duration};

/// A share of all, or a chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl Setting for Rate {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        parse(node, key, problems, "a number from 0 to 1", |text| {
            text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate)).map(Self)
        })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, self.0, origin));
    }
}

/// Patterns of methods or tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Globs(pub Vec<Glob>);

impl Setting for Globs {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let texts = texts(node, key, problems)?;
        let before = problems.len();
        let mut globs = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            match Glob::parse(text) {
                Ok(glob) => globs.push(glob),
                Err(what) => problems.push(Problem::new(node.item_origin(i), format!("{key}[{i}]"), what)),
            }
        }
        (problems.len() == before).then_some(Self(globs))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, json!(self.0), origin));
    }
}

/// How the share is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingName {
    None,
    Random,
    Systematic,
    Adaptive,
    Priority,
}

impl Choice for SamplingName {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("random", Self::Random),
        ("systematic", Self::Systematic),
        ("adaptive", Self::Adaptive),
        ("priority", Self::Priority),
    ];
}

/// What is never left out by a sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlwaysSample {
    errors: bool,
    slow_requests: bool,
}

impl Setting for AlwaysSample {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let texts = texts(node, key, problems)?;
        let before = problems.len();
        let mut always = Self { errors: false, slow_requests: false };
        for (i, text) in texts.iter().enumerate() {
            match text.as_str() {
                "errors" => always.errors = true,
                "slow_requests" => always.slow_requests = true,
                _ => problems.push(Problem::new(
                    node.item_origin(i),
                    format!("{key}[{i}]"),
                    "must be errors or slow_requests",
                )),
            }
        }
        (problems.len() == before).then_some(always)
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        let names = [(self.errors, "errors"), (self.slow_requests, "slow_requests")];
        let names: Vec<&str> = names.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        out.push(Shown::new(key, json!(names), origin));
    }
}

/// The chances of some operations, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingRules(Vec<PriorityRule>);

impl Setting for SamplingRules {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let items = items(node, key, problems, "rules")?;
        let before = problems.len();
        let read = |(i, item)| read_rule(item, &format!("{key}[{i}]"), problems);
        let rules = items.iter().enumerate().filter_map(read).collect();
        (problems.len() == before).then_some(Self(rules))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        let shown: Vec<Json> = self
            .0
            .iter()
            .map(|rule| json!({ "methods": rule.methods, "tools": rule.names, "rate": rule.rate }))
            .collect();
        out.push(Shown::new(key, json!(shown), origin));
    }
}

fn read_rule(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<PriorityRule> {
    entries(node, key, &["methods", "tools", "rate"], problems);
    let globs = |name, problems: &mut Vec<Problem>| member::<Globs>(node, key, name, problems);
    let (methods, names) = (globs("methods", problems), globs("tools", problems));
    if node.get("rate").is_none() {
        problems.push(Problem::new(&node.origin, below(key, "rate"), "is required"));
    }
    let rate = member::<Rate>(node, key, "rate", problems)?;
    let globs = |read: Option<Globs>| read.map(|globs| globs.0).unwrap_or_default();
    Some(PriorityRule { methods: globs(methods), names: globs(names), rate: rate.0 })
}

/// Reads what stands at a key of a map, where something does.
fn member<T: Setting>(node: &Node, key: &str, name: &str, problems: &mut Vec<Problem>) -> Option<T> {
    T::read(node.get(name)?, &below(key, name), problems)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StrategyName {
    Full,
    Sampled,
    ErrorFocused,
    Performance,
}

impl Choice for StrategyName {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("full", Self::Full),
        ("sampled", Self::Sampled),
        ("error_focused", Self::ErrorFocused),
        ("performance", Self::Performance),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Session,
    Window,
}

impl Choice for By {
    const NAMES: &'static [(&'static str, Self)] = &[("session", Self::Session), ("window", Self::Window)];
}

/// A strategy: its name, or a map of its name and its own keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StrategySetting(Strategy);

const STRATEGY_KEYS: [&str; 8] = ["kind", "by", "rate", "window", "every", "before", "after", "threshold"];
const RATE: f64 = 0.1;
const WINDOW: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(600);
const AROUND: u64 = 10;
const THRESHOLD: Duration = Duration::from_secs(1);

impl Setting for StrategySetting {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let written = match &node.value {
            Value::Map(_) => entries(node, key, &STRATEGY_KEYS, problems),
            _ => Vec::new(),
        };
        let kind = match (&node.value, node.get("kind")) {
            (Value::Map(_), Some(kind)) => StrategyName::read(kind, &below(key, "kind"), problems)?,
            (Value::Map(_), None) => {
                problems.push(Problem::new(&node.origin, below(key, "kind"), "is required"));
                return None;
            }
            _ => StrategyName::read(node, key, problems)?,
        };
        let by = member(node, key, "by", problems).unwrap_or(By::Session);
        let own: &[&str] = match (kind, by) {
            (StrategyName::Full, _) => &[],
            (StrategyName::Sampled, By::Session) => &["by", "rate"],
            (StrategyName::Sampled, By::Window) => &["by", "window", "every"],
            (StrategyName::ErrorFocused, _) => &["before", "after"],
            (StrategyName::Performance, _) => &["threshold"],
        };
        for (name, node) in written {
            if name != "kind" && !own.contains(&name.as_str()) {
                let with = if kind == StrategyName::Sampled {
                    format!(", by: {}", by.name())
                } else {
                    String::new()
                };
                let message = format!("has no meaning with kind: {}{with}", kind.name());
                problems.push(Problem::new(&node.origin, below(key, name), message));
            }
        }
        let span = |name, problems: &mut Vec<Problem>| member::<Span<1>>(node, key, name, problems);
        let count = |name, problems: &mut Vec<Problem>| member::<Count<0, 10_000>>(node, key, name, problems);
        let strategy = match (kind, by) {
            (StrategyName::Full, _) => Strategy::Full,
            (StrategyName::Sampled, By::Session) => {
                Strategy::Sessions { rate: member(node, key, "rate", problems).unwrap_or(Rate(RATE)).0 }
            }
            (StrategyName::Sampled, By::Window) => {
                let window = span("window", problems).map_or(WINDOW, |span| span.0);
                let every = span("every", problems).map_or(EVERY, |span| span.0);
                if window > every {
                    let origin = node.get("window").map_or(&node.origin, |node| &node.origin);
                    let message = "must not be longer than every";
                    problems.push(Problem::new(origin, below(key, "window"), message));
                }
                Strategy::Windows { window, every }
            }
            (StrategyName::ErrorFocused, _) => Strategy::ErrorFocused {
                before: small(count("before", problems)),
                after: small(count("after", problems)),
            },
            (StrategyName::Performance, _) => Strategy::Performance {
                threshold: span("threshold", problems).map_or(THRESHOLD, |span| span.0),
            },
        };
        (problems.len() == before).then_some(Self(strategy))
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        let shown = match self.0 {
            Strategy::Full => json!("full"),
            Strategy::Sessions { rate } => json!({ "kind": "sampled", "by": "session", "rate": rate }),
            Strategy::Windows { window, every } => json!({
                "kind": "sampled", "by": "window",
                "window": write_duration(window), "every": write_duration(every),
            }),
            Strategy::ErrorFocused { before, after } => {
                json!({ "kind": "error_focused", "before": before, "after": after })
            }
            Strategy::Performance { threshold } => {
                json!({ "kind": "performance", "threshold": write_duration(threshold) })
            }
        };
        out.push(Shown::new(key, shown, origin));
    }
}

fn small(count: Option<Count<0, 10_000>>) -> usize {
    usize::try_from(count.map_or(AROUND, |count| count.0)).expect("the key's range ends at 10,000")
}

impl RawRecorder {
    /// Returns which messages are kept.
    pub(crate) fn selection(&self) -> Settings {
        Settings {
            capture: capture(&self.capture),
            filters: filters(&self.filters),
            sampling: sampling(&self.sampling),
            always: always(&self.sampling),
            strategy: taken(self.strategy.as_ref()).0,
        }
    }
}

fn capture(raw: &RawCapture) -> Capture {
    Capture {
        requests: taken(raw.requests.as_ref()),
        responses: taken(raw.responses.as_ref()),
        notifications: taken(raw.notifications.as_ref()),
        errors: taken(raw.errors.as_ref()),
    }
}

fn filters(raw: &RawFilters) -> Filters {
    Filters {
        include_methods: taken(raw.include_methods.as_ref()).0,
        exclude_methods: taken(raw.exclude_methods.as_ref()).0,
        min_response_time: raw.min_response_time.as_ref().map(|given| given.value.0),
    }
}

fn sampling(raw: &RawSampling) -> Sampling {
    let rate = taken(raw.rate.as_ref()).0;
    match taken(raw.strategy.as_ref()) {
        SamplingName::None => Sampling::All,
        SamplingName::Random => Sampling::Random { rate },
        SamplingName::Systematic => Sampling::Systematic { interval: taken(raw.interval.as_ref()).0 },
        SamplingName::Adaptive => Sampling::Adaptive { target_rate: taken(raw.target_rate.as_ref()).0 },
        SamplingName::Priority => Sampling::Priority { rules: taken(raw.rules.as_ref()).0, rate },
    }
}

fn always(raw: &RawSampling) -> Always {
    let listed = taken(raw.always_sample.as_ref());
    let slow = listed.slow_requests.then(|| taken(raw.slow_threshold.as_ref()).0);
    Always { errors: listed.errors, slow }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{loaded, problems};
    use super::*;

    fn settings(text: &str) -> Settings {
        loaded(text).policy().unwrap().selection
    }

    fn strategy(text: &str) -> Strategy {
        settings(&format!("recorder: {{ strategy: {text} }}")).strategy
    }

    #[test]
    fn nothing_is_left_out_unless_asked_for() {
        assert_eq!(settings(""), Settings::default());
        assert!(settings("recorder: { sampling: { rate: 0.5, always_sample: [errors] } }").keeps_all());
    }

    #[test]
    fn samplings_and_strategies_are_read() {
        let sampling = |text: &str| settings(&format!("recorder: {{ sampling: {text} }}")).sampling;
        assert_eq!(sampling("{ strategy: random, rate: 0.25 }"), Sampling::Random { rate: 0.25 });
        assert_eq!(sampling("{ strategy: systematic, interval: 7 }"), Sampling::Systematic { interval: 7 });
        assert_eq!(sampling("{ strategy: adaptive }"), Sampling::Adaptive { target_rate: 0.1 });
        let rules =
            sampling("{ strategy: priority, rate: 0, rules: [{ methods: [tools/*], tools: [x], rate: 1 }] }");
        let glob = |text| vec![Glob::parse(text).unwrap()];
        let rule = PriorityRule { methods: glob("tools/*"), names: glob("x"), rate: 1.0 };
        assert_eq!(rules, Sampling::Priority { rules: vec![rule], rate: 0.0 });
        assert_eq!(strategy("full"), Strategy::Full);
        assert_eq!(strategy("sampled"), Strategy::Sessions { rate: 0.1 });
        let window = Strategy::Windows { window: Duration::from_secs(2), every: Duration::from_secs(600) };
        assert_eq!(strategy("{ kind: sampled, by: window, window: 2s }"), window);
        assert_eq!(strategy("error_focused"), Strategy::ErrorFocused { before: 10, after: 10 });
        let focused = Strategy::ErrorFocused { before: 0, after: 3 };
        assert_eq!(strategy("{ kind: error_focused, before: 0, after: 3 }"), focused);
        let slow = Strategy::Performance { threshold: Duration::from_millis(250) };
        assert_eq!(strategy("{ kind: performance, threshold: 250ms }"), slow);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let told = problems(
            "recorder:\n  capture: { requests: maybe }\n  filters:\n    include_methods:\n      - tools/*\n      - 'a b'\n    \
             min_response_time: fast\n  sampling:\n    strategy: often\n    rate: 2\n    interval: 0\n    target_rate: -1\n    \
             always_sample: [mistakes]\n    slow_threshold: 0ms\n    rules:\n      - { methods: [x], rates: 1 }\n      - { rate: 7 }\n",
        );
        let expected = [
            ":2: recorder.capture.requests must be true or false, not \"maybe\"",
            ":6: recorder.filters.include_methods[1] is not a pattern: it holds ' ', and only * stands for anything",
            ":7: recorder.filters.min_response_time must be a duration of at least 1ms, like 30s, 5m or 1h, not \"fast\"",
            ":9: recorder.sampling.strategy must be none, random, systematic, adaptive or priority, not \"often\"",
            ":10: recorder.sampling.rate must be a number from 0 to 1, not \"2\"",
            ":11: recorder.sampling.interval must be a whole number from 1 to 1000000, not \"0\"",
            ":12: recorder.sampling.target_rate must be a number from 0 to 1, not \"-1\"",
            ":13: recorder.sampling.always_sample[0] must be errors or slow_requests",
            ":14: recorder.sampling.slow_threshold must be a duration of at least 1ms, like 30s, 5m or 1h, not \"0ms\"",
            ":16: recorder.sampling.rules[0].rates is not a known key: did you mean `rate`?",
            ":16: recorder.sampling.rules[0].rate is required",
            ":17: recorder.sampling.rules[1].rate must be a number from 0 to 1, not \"7\"",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.ends_with(expected), "{told}\n{expected}");
        }
        for (text, expected) in [
            ("half", ".strategy must be full, sampled, error_focused or performance, not \"half\""),
            ("{ before: 3 }", ".strategy.kind is required"),
            ("{ kind: full, before: 3 }", ".strategy.before has no meaning with kind: full"),
            (
                "{ kind: sampled, window: 1s }",
                ".strategy.window has no meaning with kind: sampled, by: session",
            ),
            (
                "{ kind: sampled, by: window, window: 2s, every: 1s }",
                ".strategy.window must not be longer than every",
            ),
            (
                "{ kind: error_focused, before: many }",
                ".strategy.before must be a whole number from 0 to 10000, not \"many\"",
            ),
        ] {
            let told = problems(&format!("recorder:\n  strategy: {text}\n"));
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].ends_with(&format!(":2: recorder{expected}")), "{told:?}\n{expected}");
        }
    }
}
