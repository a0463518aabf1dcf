//! Replaces names that the index does not have by ids: `latest`, and the hosts' own ids of conversations.

use scrubjay_core::query::Conditions;

use super::Tapes;
use scrubjay_tape::catalog::{self, Overview};
use scrubjay_tape::home::Home;

/// The name of the newest tape, or of the newest conversation.
const LATEST: &str = "latest";

/// Tells whether conditions contain such names.
pub(super) fn is_needed(query: &Conditions, tapes: &Tapes) -> bool {
    query.tapes.iter().any(|name| name == LATEST)
        || query.sessions.iter().any(|name| is_unknown(name, tapes))
        || query.any_of.iter().flatten().chain(&query.none_of).any(|part| is_needed(part, tapes))
}

/// Looks up such names on the tapes. An unknown name stays, and matches nothing.
pub(super) fn resolve(home: &Home, query: &mut Conditions, tapes: &Tapes) {
    for name in query.tapes.iter_mut().filter(|name| *name == LATEST) {
        if let Ok(latest) = home.find(LATEST) {
            *name = latest.id.to_string();
        }
    }
    for name in query.sessions.iter_mut().filter(|name| is_unknown(name, tapes)) {
        if let Some(id) = session(home, name) {
            *name = id;
        }
    }
    for part in query.any_of.iter_mut().flatten().chain(&mut query.none_of) {
        resolve(home, part, tapes);
    }
}

fn is_unknown(session: &str, tapes: &Tapes) -> bool {
    // A query may name a session by the beginning of its id.
    session == LATEST || !tapes.values().any(|tape| tape.session.starts_with(session))
}

fn session(home: &Home, name: &str) -> Option<String> {
    let tape = match name {
        LATEST => home.find(LATEST).ok()?,
        _ => catalog::newest_of_session(home, &home.list().ok()?, name)?,
    };
    Some(Overview::read(home, &tape).session().id)
}
