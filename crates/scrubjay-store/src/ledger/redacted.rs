//! Reports which texts were redacted while a call stored them.
//!
//! Texts are redacted deep inside a mutation, by functions that do not know which argument of the call they came from.
//! They are collected in a task-local list, so that no mutation has to pass them on.

use std::cell::RefCell;

tokio::task_local! {
    static NOTED: RefCell<Vec<String>>;
}

/// The most texts that are collected: more than any call stores, so that the list cannot grow without bound.
const NOTED_MAX: usize = 1000;

/// Runs `work`; returns the texts that were redacted before they were stored, in their original form.
pub async fn noting<F: Future>(work: F) -> (F::Output, Vec<String>) {
    let work = async {
        let done = work.await;
        // Taken within the scope, because the list is gone after it.
        (done, NOTED.with(RefCell::take))
    };
    NOTED.scope(RefCell::default(), work).await
}

/// Notes a text that was redacted.
pub(super) fn note(text: &str) {
    // Outside of `noting`, nobody asks which texts were redacted.
    let _ = NOTED.try_with(|noted| {
        // The originals stay in memory, only to be compared with the arguments of the call.
        let mut noted = noted.borrow_mut();
        if noted.len() < NOTED_MAX {
            noted.push(text.to_owned());
        }
    });
}
