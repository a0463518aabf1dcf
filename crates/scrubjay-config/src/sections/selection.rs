//! `recorder.capture`, `filters`, `sampling` and `strategy`: which messages are kept.

use std::time::Duration;

use scrubjay_core::glob::Glob;
use scrubjay_core::selection::{
    AlwaysKept, Capture, Filters, PriorityRule, Sampling, SelectionSettings, SelectionStrategy,
};
use serde_json::{Value as Json, json};

use super::recorder::Recorder;
use crate::cursor::Cursor;
use crate::node::Value;
use crate::section::section;
use crate::setting::{Choice, Count, Setting, Share, Span, choice, write_duration};

section! {
    /// `recorder.capture`: which parts of operations are kept.
    CaptureSection {
        requests: bool = "true";
        responses: bool = "true";
        notifications: bool = "true";
        errors: bool = "true";
    }
}

section! {
    /// `recorder.filters`: which operations are kept by what they are.
    FiltersSection {
        include_methods: Vec<Glob> = "[]";
        exclude_methods: Vec<Glob> = "[]";
        min_response_time: Option<Span<1>>;
    }
}

section! {
    /// `recorder.sampling`: what share of operations is kept.
    SamplingSection {
        strategy: SamplingName = "none";
        rate: Share = "1";
        interval: Count<1, 1_000_000> = "10";
        target_rate: Share = "0.1";
        rules: SamplingRules = "[]";
        always_sample: AlwaysSample = "[]";
        slow_threshold: Span<1> = "1s";
    }
}

choice!(enum SamplingName: "none" = None, "random" = Random, "systematic" = Systematic, "adaptive" = Adaptive,
    "priority" = Priority);

/// What is kept whatever a sampling says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlwaysSample {
    errors: bool,
    slow_requests: bool,
}

impl Setting for AlwaysSample {
    fn read(at: &Cursor<'_>) -> Option<Self> {
        let names = ["errors", "slow_requests"];
        let known =
            |text: &str| names.iter().position(|n| *n == text).ok_or("must be errors or slow_requests");
        let given = at.each(known)?;
        Some(Self { errors: given.contains(&0), slow_requests: given.contains(&1) })
    }

    fn json(&self) -> Json {
        let names = [(self.errors, "errors"), (self.slow_requests, "slow_requests")];
        json!(names.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect::<Vec<_>>())
    }
}

/// The chances of some operations, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SamplingRules(Vec<PriorityRule>);

impl Setting for SamplingRules {
    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.if_right(|| Some(Self(at.list_of(" of rules")?.iter().filter_map(read_rule).collect())))
    }

    fn json(&self) -> Json {
        let shown =
            |rule: &PriorityRule| json!({ "methods": rule.methods, "tools": rule.names, "rate": rule.rate });
        json!(self.0.iter().map(shown).collect::<Vec<_>>())
    }
}

fn read_rule(at: &Cursor<'_>) -> Option<PriorityRule> {
    at.entries(&["methods", "tools", "rate"]);
    let [methods, names] = ["methods", "tools"].map(|name| at.get(name).unwrap_or_default());
    Some(PriorityRule { methods, names, rate: Share::read(&at.required("rate")?)?.0 })
}

choice!(enum StrategyName: "full" = Full, "sampled" = Sampled, "error_focused" = ErrorFocused,
    "performance" = Performance);
choice!(enum SampledBy: "session" = Session, "window" = Window);

/// A strategy: its name, or a map of its name and its own keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StrategySetting(SelectionStrategy);

const STRATEGY_KEYS: [&str; 8] = ["kind", "by", "rate", "window", "every", "before", "after", "threshold"];
const RATE: f64 = 0.1;
const WINDOW: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(600);
const AROUND: usize = 10;
const THRESHOLD: Duration = Duration::from_secs(1);

impl Setting for StrategySetting {
    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.if_right(|| read_strategy(at).map(Self))
    }

    fn json(&self) -> Json {
        match self.0 {
            SelectionStrategy::Full => json!("full"),
            SelectionStrategy::Sessions { rate } => {
                json!({ "kind": "sampled", "by": "session", "rate": rate })
            }
            SelectionStrategy::Windows { window, every } => json!({
                "kind": "sampled", "by": "window",
                "window": write_duration(window), "every": write_duration(every),
            }),
            SelectionStrategy::ErrorFocused { before, after } => {
                json!({ "kind": "error_focused", "before": before, "after": after })
            }
            SelectionStrategy::Performance { threshold } => {
                json!({ "kind": "performance", "threshold": write_duration(threshold) })
            }
        }
    }
}

fn read_strategy(at: &Cursor<'_>) -> Option<SelectionStrategy> {
    let (written, kind) = match &at.node.value {
        Value::Map(_) => (at.entries(&STRATEGY_KEYS), StrategyName::read(&at.required("kind")?)?),
        _ => (Vec::new(), StrategyName::read(at)?),
    };
    let by = at.get("by").unwrap_or(SampledBy::Session);
    let own: &[&str] = match (kind, by) {
        (StrategyName::Full, _) => &[],
        (StrategyName::Sampled, SampledBy::Session) => &["by", "rate"],
        (StrategyName::Sampled, SampledBy::Window) => &["by", "window", "every"],
        (StrategyName::ErrorFocused, _) => &["before", "after"],
        (StrategyName::Performance, _) => &["threshold"],
    };
    for (_, at) in written.iter().filter(|(name, _)| *name != "kind" && !own.contains(name)) {
        let with = if kind == StrategyName::Sampled { format!(", by: {}", by.name()) } else { String::new() };
        at.wrong::<()>(format!("has no meaning with kind: {}{with}", kind.name()));
    }
    let span = |name, usual| at.get::<Span<1>>(name).map_or(usual, |span| span.0);
    let count = |name| at.get::<Count<0, 10_000>>(name).map_or(AROUND, |count| count.0);
    Some(match (kind, by) {
        (StrategyName::Full, _) => SelectionStrategy::Full,
        (StrategyName::Sampled, SampledBy::Session) => {
            SelectionStrategy::Sessions { rate: at.get("rate").unwrap_or(Share(RATE)).0 }
        }
        (StrategyName::Sampled, SampledBy::Window) => {
            let (window, every) = (span("window", WINDOW), span("every", EVERY));
            if window > every {
                at.place("window").wrong::<()>("must not be longer than every");
            }
            SelectionStrategy::Windows { window, every }
        }
        (StrategyName::ErrorFocused, _) => {
            SelectionStrategy::ErrorFocused { before: count("before"), after: count("after") }
        }
        (StrategyName::Performance, _) => {
            SelectionStrategy::Performance { threshold: span("threshold", THRESHOLD) }
        }
    })
}

impl Recorder {
    /// Returns which messages are kept.
    pub(crate) fn selection(&self) -> SelectionSettings {
        let (capture, filters, sampling) = (&self.capture, &self.filters, &self.sampling);
        let rate = sampling.rate.0;
        SelectionSettings {
            capture: Capture {
                requests: capture.requests,
                responses: capture.responses,
                notifications: capture.notifications,
                errors: capture.errors,
            },
            filters: Filters {
                include_methods: filters.include_methods.clone(),
                exclude_methods: filters.exclude_methods.clone(),
                min_response_time: filters.min_response_time.map(|span| span.0),
            },
            sampling: match sampling.strategy {
                SamplingName::None => Sampling::All,
                SamplingName::Random => Sampling::Random { rate },
                SamplingName::Systematic => Sampling::Systematic { interval: sampling.interval.0 as u64 },
                SamplingName::Adaptive => Sampling::Adaptive { target_rate: sampling.target_rate.0 },
                SamplingName::Priority => Sampling::Priority { rules: sampling.rules.0.clone(), rate },
            },
            always: AlwaysKept {
                errors: sampling.always_sample.errors,
                slow: sampling.always_sample.slow_requests.then_some(sampling.slow_threshold.0),
            },
            strategy: self.strategy.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{loaded, problems};

    fn settings(text: &str) -> SelectionSettings {
        loaded(text).policy().unwrap().selection
    }

    fn strategy(text: &str) -> SelectionStrategy {
        settings(&format!("recorder: {{ strategy: {text} }}")).strategy
    }

    #[test]
    fn nothing_is_left_out_unless_asked_for() {
        assert_eq!(settings(""), SelectionSettings::default());
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
        assert_eq!(strategy("full"), SelectionStrategy::Full);
        assert_eq!(strategy("sampled"), SelectionStrategy::Sessions { rate: 0.1 });
        let window =
            SelectionStrategy::Windows { window: Duration::from_secs(2), every: Duration::from_secs(600) };
        assert_eq!(strategy("{ kind: sampled, by: window, window: 2s }"), window);
        assert_eq!(strategy("error_focused"), SelectionStrategy::ErrorFocused { before: 10, after: 10 });
        let focused = SelectionStrategy::ErrorFocused { before: 0, after: 3 };
        assert_eq!(strategy("{ kind: error_focused, before: 0, after: 3 }"), focused);
        let slow = SelectionStrategy::Performance { threshold: Duration::from_millis(250) };
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
