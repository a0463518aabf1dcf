//! Finds the call under way that a message of a backend belongs to.

use std::sync::Arc;

use scrubjay_core::message::Parts;
use scrubjay_core::protocol::meta;

use super::channel::RpcChannel;
use crate::ruled_line::RuledLine;
use crate::session::{Call, lock};

impl RpcChannel {
    /// Returns the call that a message belongs to, if that is certain: the newest one, if the message came on the
    /// stream of a call, or no other client has ever spoken on this connection.
    pub(super) fn belongs_to(&self, busy: &[Arc<Call>], stream_of: Option<u64>) -> Option<Arc<Call>> {
        if self.has_one_client() {
            // The newest call is a guess, but the client is certain.
            return busy.first().cloned();
        }
        only_session(busy)
            .filter(|call| stream_of.is_some() || lock(&self.clients_seen).is_nobody_but(&call.session))
    }

    /// Returns the call that a notification or question is for, if that is certain.
    pub(super) fn addressee(&self, line: &RuledLine, stream_of: Option<u64>) -> Option<Arc<Call>> {
        let text = line.text();
        let parts = Parts::of(&text).ok();
        let token = parts.as_ref().and_then(|parts| parts.param(meta::PROGRESS_TOKEN));
        let progressing = token.and_then(|token| self.progressing(token, stream_of));
        progressing.map(|(call, _)| call).or_else(|| self.belongs_to(&self.callers(stream_of), stream_of))
    }

    /// Returns whether a call is under way whose answer may demand input of the client.
    pub(super) fn has_call_that_may_demand(&self) -> bool {
        lock(&self.pending).values().any(|pending| pending.may_demand && pending.call.is_some())
    }

    /// Returns the calls that a message may belong to, newest first; if it came on the stream of a call, that call
    /// alone.
    pub(super) fn callers(&self, stream_of: Option<u64>) -> Vec<Arc<Call>> {
        match stream_of {
            Some(id) => lock(&self.pending).get(&id).and_then(|p| p.call.clone()).into_iter().collect(),
            None => self.busy(),
        }
    }

    /// Returns the calls under way, newest first.
    pub(super) fn busy(&self) -> Vec<Arc<Call>> {
        let pending = lock(&self.pending);
        let mut calls: Vec<(u64, Arc<Call>)> =
            pending.iter().filter_map(|(id, p)| Some((*id, p.call.clone()?))).collect();
        calls.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        calls.into_iter().map(|(_, call)| call).collect()
    }
}

/// Returns the newest call if all calls under way belong to one client.
pub(crate) fn only_session(busy: &[Arc<Call>]) -> Option<Arc<Call>> {
    let first = busy.first()?;
    // Several clients may share an inferred session; a single call still belongs to one of them.
    let surely_one = busy.len() == 1 || !first.session.is_inferred;
    let same = surely_one && busy.iter().all(|call| Arc::ptr_eq(&call.session, &first.session));
    same.then(|| first.clone())
}

#[cfg(test)]
mod tests;
