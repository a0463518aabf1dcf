//! Properties of selection: operations stay whole, failures are kept, rates are met, and limits hold.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;
use proptest::test_runner::RngSeed;

use super::undecided::{UNDECIDED_BYTES_MAX, UNDECIDED_MAX};
use super::*;
use Direction::{ClientToServer as C, ServerToClient as S};

const MS: u64 = 1_000_000;

/// A conversation in progress, with the decision about each message.
struct Play {
    selection: Selection,
    at_ns: u64,
    decisions: BTreeMap<u64, bool>,
    offered: u64,
}

impl Play {
    fn new(settings: SelectionSettings) -> Self {
        Self::seeded(settings, 1)
    }

    fn seeded(settings: SelectionSettings, seed: u64) -> Self {
        Self {
            selection: Selection::new(settings, seed, 0.5),
            at_ns: 0,
            decisions: BTreeMap::new(),
            offered: 0,
        }
    }

    fn say(&mut self, direction: Direction, line: &str) -> u64 {
        self.say_on(direction, None, None, line)
    }

    fn say_on(&mut self, direction: Direction, via: Option<&str>, operation: Option<u64>, line: &str) -> u64 {
        let envelope = Envelope::parse(line.as_bytes());
        let (at_ns, bytes) = (self.at_ns, line.len() as u64);
        let offer = OfferedMessage {
            direction,
            via: via.map(|backend| (backend, 1)),
            operation,
            envelope: &envelope,
            bytes,
            at_ns,
            wall_ns: at_ns,
        };
        let number = self.selection.offer(&offer);
        self.offered += 1;
        self.take();
        number
    }

    fn take(&mut self) {
        for decision in self.selection.decisions() {
            let earlier = self.decisions.insert(decision.message, decision.is_kept);
            assert_eq!(earlier, None, "{} was decided twice", decision.message);
        }
    }

    fn wait(&mut self, ms: u64) {
        self.at_ns += ms * MS;
    }

    fn call(&mut self, id: u64, method: &str, ms: u64, ok: bool) -> [u64; 2] {
        let asked = self.say(C, &request(id, method));
        self.wait(ms);
        [asked, self.say(S, &answer(id, ok))]
    }

    /// Ends, and returns which messages were kept.
    fn kept(mut self) -> Vec<u64> {
        self.selection.finish();
        self.take();
        assert_eq!(self.decisions.len() as u64, self.offered, "every message has a decision");
        assert_eq!(self.selection.undecided_size(), (0, 0));
        self.decisions.into_iter().filter(|(_, kept)| *kept).map(|(message, _)| message).collect()
    }
}

fn request(id: u64, method: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"t","_meta":{{"progressToken":{id}}}}}}}"#
    )
}

fn answer(id: u64, ok: bool) -> String {
    if ok {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    } else {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no"}}}}"#)
    }
}

fn progress(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#
    )
}

fn notice(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
}

fn globs(patterns: &[&str]) -> Vec<crate::glob::Glob> {
    patterns.iter().map(|pattern| crate::glob::Glob::parse(pattern).unwrap()).collect()
}

fn strategy(strategy: SelectionStrategy) -> SelectionSettings {
    SelectionSettings { strategy, ..SelectionSettings::default() }
}

#[test]
fn capture_flags_leave_out_parts_but_never_the_greeting() {
    let all = Capture::default();
    let kept = |capture: Capture| {
        let mut play = Play::new(SelectionSettings { capture, ..SelectionSettings::default() });
        play.call(0, "initialize", 1, true);
        play.say(C, &notice("notifications/initialized"));
        play.call(1, "tools/call", 1, true);
        play.say(S, &notice("notifications/message"));
        play.call(2, "tools/call", 1, false);
        play.kept()
    };
    assert_eq!(kept(all), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(kept(Capture { requests: false, ..all }), [0, 1, 2, 4, 5, 7]);
    assert_eq!(kept(Capture { responses: false, ..all }), [0, 1, 2, 3, 5, 6, 7]);
    assert_eq!(kept(Capture { notifications: false, ..all }), [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(kept(Capture { errors: false, ..all }), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn an_operation_is_judged_by_its_request() {
    let filters = Filters {
        include_methods: globs(&["tools/*", "ping"]),
        exclude_methods: globs(&["*/list"]),
        min_response_time: None,
    };
    let mut play = Play::new(SelectionSettings { filters, ..SelectionSettings::default() });
    let asked = play.say(C, &request(1, "tools/call"));
    let notified = play.say(S, &progress(1));
    let answered = play.say(S, &answer(1, true));
    play.call(2, "tools/list", 1, false);
    play.say(S, &notice("notifications/message"));
    let unasked = play.say(S, &answer(77, true));
    let garbage = play.say(S, "what?");
    let left_out = play.selection.take_left_out();
    assert_eq!((left_out.filter.messages, left_out.total().messages), (3, 3));
    assert_eq!(play.kept(), [asked, notified, answered, unasked, garbage]);
}

#[test]
fn quick_requests_are_filtered_and_failures_are_not() {
    let filters = Filters { min_response_time: Some(Duration::from_millis(100)), ..Filters::default() };
    let mut play = Play::new(SelectionSettings { filters, ..SelectionSettings::default() });
    play.call(1, "tools/call", 99, true);
    let slow = play.call(2, "tools/call", 100, true);
    let failed = play.call(3, "tools/call", 1, false);
    let unanswered = play.say(C, &request(4, "tools/call"));
    assert_eq!(play.kept(), [slow[0], slow[1], failed[0], failed[1], unanswered]);
}

#[test]
fn a_failure_is_kept_with_what_is_around_it() {
    let mut play = Play::new(strategy(SelectionStrategy::ErrorFocused { before: 3, after: 2 }));
    play.call(1, "tools/call", 1, true);
    play.say(S, &notice("notifications/message"));
    // Its answer is one of the three messages before the failure, so all of it is kept.
    let near = play.say(C, &request(2, "tools/call"));
    for _ in 0..3 {
        play.say(S, &notice("notifications/other"));
    }
    let near_answer = play.say(S, &answer(2, true));
    let before = play.say(S, &notice("notifications/message"));
    let failed = play.call(3, "tools/call", 1, false);
    let after = play.say(S, &notice("notifications/message"));
    let last = play.say(C, &request(4, "tools/call"));
    play.say(S, &notice("notifications/message"));
    let last_answer = play.say(S, &answer(4, true));
    play.call(5, "tools/call", 1, true);
    let left_out = play.selection.left_out;
    assert_eq!(play.kept(), [near, near_answer, before, failed[0], failed[1], after, last, last_answer]);
    assert!(left_out.strategy.messages > 0 && left_out.strategy == left_out.total());
}

#[test]
fn the_performance_strategy_keeps_only_slow_operations() {
    let mut play =
        Play::new(strategy(SelectionStrategy::Performance { threshold: Duration::from_millis(50) }));
    play.call(1, "tools/call", 49, true);
    let slow = play.call(2, "tools/call", 50, true);
    play.call(3, "tools/call", 1, false);
    play.say(S, &notice("notifications/message"));
    assert_eq!(play.kept(), slow);
}

#[test]
fn sessions_and_windows_are_sampled_as_a_whole() {
    for (rate, expected) in [(0.4, 0), (0.6, 4)] {
        let mut play = Play::new(strategy(SelectionStrategy::Sessions { rate }));
        play.call(1, "tools/call", 1, true);
        play.call(2, "tools/call", 1, true);
        assert_eq!(play.kept().len(), expected);
    }
    let (window, every) = (Duration::from_secs(1), Duration::from_secs(10));
    let mut play = Play::new(strategy(SelectionStrategy::Windows { window, every }));
    let mut expected = Vec::new();
    for id in 0..40 {
        let begins_inside = play.at_ns / MS % 10_000 < 1000;
        // It ends outside of the window, and is kept.
        let call = play.call(id, "tools/call", 400, true);
        if begins_inside {
            expected.extend(call);
        }
    }
    assert!(expected.len() > 6);
    assert_eq!(play.kept(), expected);
}

#[test]
fn slow_operations_are_always_kept_if_configured() {
    let always = AlwaysKept { errors: false, slow: Some(Duration::from_millis(50)) };
    let mut play = Play::new(SelectionSettings {
        sampling: Sampling::Random { rate: 0.0 },
        always,
        ..SelectionSettings::default()
    });
    play.call(1, "tools/call", 49, true);
    play.call(2, "tools/call", 1, false);
    let slow = play.call(3, "tools/call", 50, true);
    assert_eq!(play.kept(), slow);
}

#[test]
fn ids_of_any_length_find_their_answers() {
    let sampling = Sampling::Systematic { interval: 2 };
    let mut play = Play::new(SelectionSettings { sampling, ..SelectionSettings::default() });
    let id = |n: usize| format!("\"{}{n}\"", "x".repeat(5000));
    let mut expected = Vec::new();
    for n in 0..6 {
        let asked = play.say(C, &format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call"}}"#, id(n)));
        let answered = play.say(S, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id(n)));
        if n % 2 == 0 {
            expected.extend([asked, answered]);
        }
    }
    assert_eq!(play.kept(), expected);
}

#[test]
fn both_legs_of_a_call_are_decided_together() {
    let sampling = Sampling::Systematic { interval: 2 };
    let mut play = Play::new(SelectionSettings { sampling, ..SelectionSettings::default() });
    let mut expected = Vec::new();
    for id in 0..10 {
        let asked = play.say(C, &request(id, "tools/call"));
        let legs = [
            asked,
            play.say_on(C, Some("files"), Some(asked), &request(900 + id, "tools/call")),
            play.say_on(S, Some("files"), Some(asked), &progress(900 + id)),
            play.say_on(S, Some("files"), Some(asked), &answer(900 + id, true)),
            play.say(S, &answer(id, true)),
        ];
        if id % 2 == 0 {
            expected.extend(legs);
        }
    }
    assert_eq!(play.kept(), expected);
}

#[test]
fn rounds_of_one_request_are_decided_together() {
    let always = AlwaysKept { errors: true, slow: None };
    let settings = SelectionSettings {
        sampling: Sampling::Random { rate: 0.0 },
        always,
        ..SelectionSettings::default()
    };
    for ok in [true, false] {
        let mut play = Play::new(settings.clone());
        play.say(C, &request(1, "tools/call"));
        play.say(
            S,
            r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}"#,
        );
        play.say(C, r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"requestState":"s","inputResponses":{}}}"#);
        play.say(S, &answer(2, ok));
        assert_eq!(play.kept().len(), if ok { 0 } else { 4 });
    }
}

#[test]
fn decisions_are_remembered_while_other_operations_pass() {
    let sampling = Sampling::Random { rate: 0.0 };
    let mut play = Play::new(SelectionSettings { sampling, ..SelectionSettings::default() });
    play.say(C, &request(1, "subscriptions/listen"));
    for n in 0..70_000 {
        play.say(S, &notice("notifications/message"));
        if n % 1000 == 0 {
            play.say(S, &progress(1));
        }
    }
    for id in 2..70_000 {
        play.call(id, "tools/call", 0, true);
        if id % 1000 == 0 {
            play.say(S, &progress(1));
        }
    }
    play.say(S, &answer(1, true));
    assert!(play.kept().is_empty());
}

#[test]
fn an_operation_that_waits_too_long_is_kept() {
    let mut play =
        Play::new(strategy(SelectionStrategy::Performance { threshold: Duration::from_millis(50) }));
    let asked = play.say(C, &request(1, "tools/call"));
    play.wait(59_000);
    play.selection.pass_time(play.at_ns);
    play.take();
    assert!(play.decisions.is_empty());
    play.wait(1_000);
    play.selection.pass_time(play.at_ns);
    play.take();
    assert_eq!(play.decisions, BTreeMap::from([(asked, true)]));
    let answered = play.say(S, &answer(1, true));
    assert_eq!(play.kept(), [asked, answered]);
}

#[test]
fn floods_stay_within_the_limits() {
    let long = "x".repeat(10_000);
    for settings in [
        strategy(SelectionStrategy::ErrorFocused { before: 10_000, after: 1 }),
        strategy(SelectionStrategy::Performance { threshold: Duration::from_secs(1) }),
        SelectionSettings {
            sampling: Sampling::Random { rate: 0.0 },
            always: AlwaysKept { errors: true, slow: None },
            ..SelectionSettings::default()
        },
    ] {
        let mut play = Play::new(settings);
        for id in 0..20_000 {
            // Never answered, some of them long, some with ids too long to keep.
            let line = match id % 50 {
                0 => request(id, &long),
                1 => request(id, "tools/call").replacen(
                    &format!("\"id\":{id}"),
                    &format!("\"id\":\"{id}{long}\""),
                    1,
                ),
                2 => notice(&long),
                _ => request(7, "tools/call"),
            };
            play.say(C, &line);
            let (messages, bytes) = play.selection.undecided_size();
            assert!(messages <= UNDECIDED_MAX && bytes <= UNDECIDED_BYTES_MAX, "{messages} {bytes}");
        }
        assert!(play.kept().len() > 10_000, "unanswered requests are kept");
    }
}

/// Holds many operations and returns the share that is kept.
fn rate(sampling: Sampling, always: AlwaysKept, seed: u64, failing: impl Fn(u64) -> bool) -> f64 {
    let operations = 4000;
    let mut play = Play::seeded(SelectionSettings { sampling, always, ..SelectionSettings::default() }, seed);
    for id in 0..operations {
        play.call(id, if id % 2 == 0 { "tools/call" } else { "tools/list" }, 1, !failing(id));
    }
    let kept = u32::try_from(play.kept().len()).unwrap();
    f64::from(kept) / 2.0 / 4000.0
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::with_cases(12) })]

    #[test]
    fn shares_are_met(seed: u64, rate_given in 0.0..=1.0_f64) {
        let none = AlwaysKept::default();
        // At most five standard deviations of 4000 draws.
        let near = |share: f64, wanted: f64| (share - wanted).abs() < 0.04;
        let random = rate(Sampling::Random { rate: rate_given }, none, seed, |_| false);
        prop_assert!(near(random, rate_given), "{random} for {rate_given}");
        let adaptive = rate(Sampling::Adaptive { target_rate: rate_given }, none, seed, |_| false);
        prop_assert!((adaptive - rate_given).abs() < 0.02, "{adaptive} for {rate_given}");
        let rule = PriorityRule { methods: globs(&["*/list"]), names: Vec::new(), rate: rate_given };
        let priority = Sampling::Priority { rules: vec![rule], rate: 1.0 };
        let priority = rate(priority, none, seed, |_| false);
        prop_assert!(near(priority, 0.5 + rate_given / 2.0), "{priority} for {rate_given}");
    }

    #[test]
    fn an_adaptive_share_counts_what_is_kept_anyway(seed: u64, every in 5_u64..20) {
        let always = AlwaysKept { errors: true, slow: None };
        let share = rate(Sampling::Adaptive { target_rate: 0.25 }, always, seed, |id| id % every == 0);
        prop_assert!((share - 0.25).abs() < 0.03, "{share}");
        let random = rate(Sampling::Random { rate: 0.25 }, always, seed, |id| id % every == 0);
        prop_assert!(random > 0.26, "{random}");
    }

    #[test]
    fn systematic_sampling_keeps_exactly_one_in_n(seed: u64, interval in 1_u64..50) {
        let share = rate(Sampling::Systematic { interval }, AlwaysKept::default(), seed, |_| false);
        let expected = f64::from(u32::try_from(4000_u64.div_ceil(interval)).unwrap()) / 4000.0;
        prop_assert!((share - expected).abs() < 1e-9);
    }
}

/// One step of a conversation with several calls at once.
#[derive(Clone, Debug)]
enum Step {
    Ask { greeting: bool, backend: bool },
    Progress(usize),
    Answer(usize, bool),
    Cancel(usize),
    Notice,
    Wait(u64),
}

fn step() -> impl Generator<Value = Step> {
    prop_oneof![
        4 => (prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(greeting, backend)| Step::Ask { greeting, backend }),
        2 => any::<usize>().prop_map(Step::Progress),
        5 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(at, ok)| Step::Answer(at, ok)),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => Just(Step::Notice),
        1 => prop_oneof![Just(10_u64), Just(200), Just(70_000)].prop_map(Step::Wait),
    ]
}

fn any_settings() -> impl Generator<Value = SelectionSettings> {
    let sampling = prop_oneof![
        Just(Sampling::All),
        (0.0..=1.0_f64).prop_map(|rate| Sampling::Random { rate }),
        (1_u64..5).prop_map(|interval| Sampling::Systematic { interval }),
        (0.0..=1.0_f64).prop_map(|target_rate| Sampling::Adaptive { target_rate }),
    ];
    let strategies = prop_oneof![
        Just(SelectionStrategy::Full),
        (0.0..=1.0_f64).prop_map(|rate| SelectionStrategy::Sessions { rate }),
        (0_usize..6, 0_usize..6)
            .prop_map(|(before, after)| SelectionStrategy::ErrorFocused { before, after }),
        Just(SelectionStrategy::Performance { threshold: Duration::from_millis(100) }),
    ];
    let slow = prop::option::of(Just(Duration::from_millis(100)));
    let always = (any::<bool>(), slow.clone()).prop_map(|(errors, slow)| AlwaysKept { errors, slow });
    let exclude = prop_oneof![Just(Vec::new()), Just(globs(&["notifications/*"]))];
    let filters = (exclude, slow).prop_map(|(exclude_methods, min_response_time)| Filters {
        include_methods: Vec::new(),
        exclude_methods,
        min_response_time,
    });
    (sampling, strategies, always, filters).prop_map(|(sampling, strategy, always, filters)| {
        SelectionSettings { capture: Capture::default(), filters, sampling, always, strategy }
    })
}

proptest! {
    #[test]
    fn operations_stay_whole_and_failures_stay(
        settings in any_settings(),
        steps in prop::collection::vec(step(), 1..80),
        seed: u64,
    ) {
        let mut play = Play::seeded(settings.clone(), seed);
        // For each call: its messages, and whether it is a greeting, is open, or failed.
        let mut calls: Vec<(Vec<u64>, bool, bool, bool)> = Vec::new();
        for step in steps {
            let under_way: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].2).collect();
            let pick = |at: usize| under_way.get(at % under_way.len().max(1)).copied();
            match step {
                Step::Ask { greeting, backend } => {
                    let id = calls.len() as u64;
                    let asked = play.say(C, &request(id, if greeting { "initialize" } else { "tools/call" }));
                    let mut messages = vec![asked];
                    if backend {
                        messages.push(play.say_on(C, Some("b"), Some(asked), &request(1000 + id, "tools/call")));
                    }
                    calls.push((messages, greeting, true, false));
                }
                Step::Progress(at) => if let Some(i) = pick(at) {
                    let message = play.say(S, &progress(i as u64));
                    calls[i].0.push(message);
                },
                Step::Answer(at, ok) => if let Some(i) = pick(at) {
                    let message = play.say(S, &answer(i as u64, ok));
                    calls[i].0.push(message);
                    (calls[i].2, calls[i].3) = (false, !ok);
                },
                Step::Cancel(at) => if let Some(i) = pick(at) {
                    let line = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{i}}}}}"#);
                    let message = play.say(C, &line);
                    calls[i].0.push(message);
                },
                Step::Notice => { play.say(S, &notice("notifications/message")); }
                Step::Wait(ms) => play.wait(ms),
            }
        }
        let (messages, left_out_before) = (play.offered, play.selection.take_left_out());
        play.selection.finish();
        let mut left_out = play.selection.take_left_out();
        left_out.add(&left_out_before);
        let kept = play.kept();
        prop_assert_eq!(left_out.total().messages, messages - kept.len() as u64);
        let keeps_errors = settings.always.errors || matches!(settings.strategy, SelectionStrategy::ErrorFocused { .. });
        for (messages, greeting, under_way, failed) in &calls {
            let of_it = messages.iter().filter(|message| kept.binary_search(message).is_ok()).count();
            prop_assert!(of_it == 0 || of_it == messages.len(), "{:?} of {:?}", of_it, messages);
            if *greeting || *failed && keeps_errors {
                prop_assert_eq!(of_it, messages.len(), "{:?} is missing", messages);
            }
            let can_be_forced = settings.sampling == Sampling::All || settings.always.errors;
            if *under_way && can_be_forced && !matches!(settings.strategy, SelectionStrategy::Sessions { .. }) {
                prop_assert_eq!(of_it, messages.len(), "{:?} had no outcome", messages);
            }
        }
    }
}
