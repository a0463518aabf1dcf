//! Tells the one who stores something what was taken out of it on the way.
//!
//! Texts are cleaned deep inside a mutation, by functions that do not know which argument of a call they came from.
//! They are noted for the task at work, so that every mutation tells of it without saying so itself.

use std::cell::RefCell;

tokio::task_local! {
    static NOTED: RefCell<Vec<String>>;
}

/// So many texts are noted of one piece of work: more than any call stores.
const NOTED_MAX: usize = 1000;

/// Does some work; returns the texts that were stored otherwise than they were given, as they were given.
pub async fn noting<F: Future>(work: F) -> (F::Output, Vec<String>) {
    let work = async {
        let done = work.await;
        (done, NOTED.with(RefCell::take))
    };
    NOTED.scope(RefCell::default(), work).await
}

/// Notes a text that is stored otherwise than it was given.
pub(super) fn note(text: &str) {
    // Where nobody asked, nobody is told.
    let _ = NOTED.try_with(|noted| {
        let mut noted = noted.borrow_mut();
        if noted.len() < NOTED_MAX {
            noted.push(text.to_owned());
        }
    });
}
