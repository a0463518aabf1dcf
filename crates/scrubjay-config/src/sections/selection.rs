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
use crate::setting::{Choice, Count, List, Setting, Share, Span, choice, write_duration};

section! {
    Capture {
        requests: bool = "true";
        responses: bool = "true";
        notifications: bool = "true";
        errors: bool = "true";
    }
}

section! {
    Filters {
        include_methods: List<Glob> = "[]";
        exclude_methods: List<Glob> = "[]";
        min_response_time: Option<Span<1>>;
    }
}

section! {
    /// `recorder.sampling`: what share of operations is kept.
    struct SamplingSection {
        strategy: SamplingName = "none";
        rate: Share = "1";
        interval: Count<1, 1_000_000, u64> = "10";
        target_rate: Share = "0.1";
        rules: Vec<PriorityRule> = "[]";
        always_sample: Vec<AlwaysSample> = "[]";
        slow_threshold: Span<1> = "1s";
    }
}

choice!(enum SamplingName: "none" = None, "random" = Random, "systematic" = Systematic, "adaptive" = Adaptive,
    "priority" = Priority);

// Operations that are kept in addition to the sample.
choice!(enum AlwaysSample: "errors" = Errors, "slow_requests" = SlowRequests);

/// The probabilities of some operations, in order.
impl Setting for Vec<PriorityRule> {
    type Value = Self;

    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.read_items(" of rules", read_rule)
    }

    fn json(value: &Self) -> Json {
        let shown =
            |rule: &PriorityRule| json!({ "methods": rule.methods, "tools": rule.names, "rate": rule.rate });
        value.iter().map(shown).collect()
    }
}

fn read_rule(at: &Cursor<'_>) -> Option<PriorityRule> {
    at.entries(&["methods", "tools", "rate"]);
    let [methods, names] = ["methods", "tools"].map(|name| at.get::<List<Glob>>(name).unwrap_or_default());
    Some(PriorityRule { methods, names, rate: Share::read(&at.required("rate")?)? })
}

choice!(enum StrategyName: "full" = Full, "sampled" = Sampled, "error_focused" = ErrorFocused,
    "performance" = Performance);
choice!(enum SampledBy: "session" = Session, "window" = Window);

const STRATEGY_KEYS: [&str; 8] = ["kind", "by", "rate", "window", "every", "before", "after", "threshold"];
const RATE: f64 = 0.1;
const WINDOW: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(600);
const AROUND: usize = 10;
const THRESHOLD: Duration = Duration::from_secs(1);

/// A strategy: its name, or a map of its name and its own keys.
impl Setting for SelectionStrategy {
    type Value = Self;

    fn read(at: &Cursor<'_>) -> Option<Self> {
        at.if_right(|| read_strategy(at))
    }

    fn json(value: &Self) -> Json {
        match *value {
            Self::Full => json!("full"),
            Self::Sessions { rate } => json!({ "kind": "sampled", "by": "session", "rate": rate }),
            Self::Windows { window, every } => json!({
                "kind": "sampled", "by": "window",
                "window": write_duration(window), "every": write_duration(every),
            }),
            Self::ErrorFocused { before, after } => {
                json!({ "kind": "error_focused", "before": before, "after": after })
            }
            Self::Performance { threshold } => {
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
    let by = at.get::<SampledBy>("by").unwrap_or(SampledBy::Session);
    let span = |name, usual| at.get::<Span<1>>(name).unwrap_or(usual);
    let count = |name| at.get::<Count<0, 10_000>>(name).unwrap_or(AROUND);
    let (own, strategy): (&[&str], _) = match (kind, by) {
        (StrategyName::Full, _) => (&[], SelectionStrategy::Full),
        (StrategyName::Sampled, SampledBy::Session) => {
            let rate = at.get::<Share>("rate").unwrap_or(RATE);
            (&["by", "rate"], SelectionStrategy::Sessions { rate })
        }
        (StrategyName::Sampled, SampledBy::Window) => {
            let (window, every) = (span("window", WINDOW), span("every", EVERY));
            if window > every {
                at.member_or_self("window").wrong::<()>("must not be longer than every");
            }
            (&["by", "window", "every"], SelectionStrategy::Windows { window, every })
        }
        (StrategyName::ErrorFocused, _) => {
            let (before, after) = (count("before"), count("after"));
            (&["before", "after"], SelectionStrategy::ErrorFocused { before, after })
        }
        (StrategyName::Performance, _) => {
            (&["threshold"], SelectionStrategy::Performance { threshold: span("threshold", THRESHOLD) })
        }
    };
    // A key of another strategy would be ignored silently, and its writer would believe that it counts.
    for (_, at) in written.iter().filter(|(name, _)| *name != "kind" && !own.contains(name)) {
        let with = if kind == StrategyName::Sampled { format!(", by: {}", by.name()) } else { String::new() };
        at.wrong::<()>(format!("has no meaning with kind: {}{with}", kind.name()));
    }
    Some(strategy)
}

impl Recorder {
    /// Returns which messages are kept.
    pub(crate) fn selection(&self) -> SelectionSettings {
        let sampling = &self.sampling;
        let is_always_kept = |kind| sampling.always_sample.contains(&kind);
        SelectionSettings {
            capture: self.capture,
            filters: self.filters.clone(),
            sampling: match sampling.strategy {
                SamplingName::None => Sampling::All,
                SamplingName::Random => Sampling::Random { rate: sampling.rate },
                SamplingName::Systematic => Sampling::Systematic { interval: sampling.interval },
                SamplingName::Adaptive => Sampling::Adaptive { target_rate: sampling.target_rate },
                SamplingName::Priority => {
                    Sampling::Priority { rules: sampling.rules.clone(), rate: sampling.rate }
                }
            },
            always: AlwaysKept {
                errors: is_always_kept(AlwaysSample::Errors),
                slow: is_always_kept(AlwaysSample::SlowRequests).then_some(sampling.slow_threshold),
            },
            strategy: self.strategy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_problems, loaded};

    fn settings(text: &str) -> SelectionSettings {
        loaded(text).policy().unwrap().selection
    }

    fn strategy(text: &str) -> SelectionStrategy {
        settings(&format!("recorder: {{ strategy: {text} }}")).strategy
    }

    #[test]
    fn everything_is_recorded_by_default() {
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
    fn wrong_values_are_reported_with_their_line() {
        check_problems(
            "recorder:\n  capture: { requests: maybe }\n  filters:\n    include_methods:\n      - tools/*\n      - 'a b'\n    \
             min_response_time: fast\n  sampling:\n    strategy: often\n    rate: 2\n    interval: 0\n    target_rate: -1\n    \
             always_sample: [mistakes]\n    slow_threshold: 0ms\n    rules:\n      - { methods: [x], rates: 1 }\n      - { rate: 7 }\n",
            &[
                ":2: recorder.capture.requests must be true or false, not \"maybe\"",
                ":6: recorder.filters.include_methods[1] is not a pattern: it holds ' ', and the only wildcard is *",
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
            ],
        );
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
            check_problems(
                &format!("recorder:\n  strategy: {text}\n"),
                &[&format!(":2: recorder{expected}")],
            );
        }
    }
}
