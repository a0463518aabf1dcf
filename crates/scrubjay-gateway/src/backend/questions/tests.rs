//! A question waits for a call that may take it, within limits, and only while its backend waits for the answer.

use tokio::sync::oneshot;

use super::*;
use crate::backend::Answer;

const TOOL_CALL: QuestionTaker = QuestionTaker { was_asked: false, takes_all: true };
const RESOURCE_READ: QuestionTaker = QuestionTaker { was_asked: false, takes_all: false };

fn demand(method: &str) -> (Demand, oneshot::Receiver<Answer>) {
    let (reply, answer) = oneshot::channel();
    (Demand { method: method.to_owned(), params: None, reply }, answer)
}

fn taken(questions: &Questions, taker: QuestionTaker) -> Option<String> {
    questions.try_take(taker).map(|demand| demand.method)
}

#[test]
fn questions_are_taken_once_and_in_their_order() {
    let questions = Questions::default();
    let (first, second) = (demand("first"), demand("second"));
    questions.put(first.0, false).expect("there is room");
    questions.put(second.0, true).expect("there is room");
    assert_eq!(taken(&questions, TOOL_CALL).as_deref(), Some("first"));
    assert_eq!(taken(&questions, TOOL_CALL).as_deref(), Some("second"));
    assert_eq!(taken(&questions, TOOL_CALL), None);
}

#[test]
fn only_a_tool_call_takes_what_was_asked_outside_calls() {
    let questions = Questions::default();
    let (outside, within) = (demand("outside"), demand("within"));
    questions.put(outside.0, true).expect("there is room");
    assert_eq!(taken(&questions, RESOURCE_READ), None);
    questions.put(within.0, false).expect("there is room");
    assert_eq!(taken(&questions, RESOURCE_READ).as_deref(), Some("within"));
    assert_eq!(taken(&questions, TOOL_CALL).as_deref(), Some("outside"));
}

#[test]
fn a_question_whose_answer_nobody_waits_for_is_not_asked() {
    let questions = Questions::default();
    let (dropped, waiting) = (demand("dropped"), demand("waiting"));
    questions.put(dropped.0, false).expect("there is room");
    questions.put(waiting.0, false).expect("there is room");
    drop(dropped.1);
    assert_eq!(taken(&questions, TOOL_CALL).as_deref(), Some("waiting"));
    assert_eq!(taken(&questions, TOOL_CALL), None);
}

#[test]
fn with_too_many_questions_the_newest_is_given_back() {
    let questions = Questions::default();
    let waiting: Vec<_> = (0..WAITING_MAX)
        .map(|_| {
            let (demand, answer) = demand("waiting");
            questions.put(demand, false).expect("there is room");
            answer
        })
        .collect();
    let refused = questions.put(demand("one more").0, false).expect_err("there is no room");
    assert_eq!(refused.method, "one more");
    assert!(questions.try_take(TOOL_CALL).is_some() && waiting.len() == WAITING_MAX);
    questions.put(demand("later").0, false).expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_gets_the_next_question() {
    let questions = Arc::new(Questions::default());
    let waiting = tokio::spawn({
        let questions = questions.clone();
        async move { questions.take(TOOL_CALL).await.method }
    });
    tokio::task::yield_now().await;
    let (asked, _answer) = demand("roots/list");
    questions.put(asked, true).expect("there is room");
    assert_eq!(waiting.await.expect("it takes the question"), "roots/list");
    assert_eq!(questions.fresh_calls.load(Ordering::Acquire), 0, "it waits no more");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_until_what_was_asked_outside_calls_is_answered_and_a_moment_longer() {
    let questions = Arc::new(Questions::default());
    let began = tokio::time::Instant::now();
    questions.settled().await;
    let within = questions.begin(false);
    questions.settled().await;
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing was asked outside calls");
    drop(within);
    let outside = questions.begin(true);
    let early = tokio::time::timeout(Duration::from_secs(60), questions.settled()).await;
    assert!(early.is_err(), "it has no answer yet");
    let answered = tokio::time::Instant::now();
    drop(outside);
    questions.settled().await;
    assert_eq!(answered.elapsed(), Duration::ZERO, "it was settled before this began to wait");
    let outside = questions.begin(true);
    let waiting = tokio::spawn({
        let questions = questions.clone();
        async move { questions.settled().await }
    });
    tokio::task::yield_now().await;
    drop(outside);
    waiting.await.expect("it is settled");
    assert!(answered.elapsed() >= ACT_ON_ANSWER);
}

#[tokio::test(start_paused = true)]
async fn the_first_question_is_noticed_before_and_after_it_came() {
    let questions = Arc::new(Questions::default());
    let hour = Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, questions.first()).await.is_err());
    drop(questions.begin(false));
    assert!(tokio::time::timeout(hour, questions.first()).await.is_ok());
}
