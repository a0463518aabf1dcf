//! Ids and names of a length that can be kept in tables: what a peer sends may have megabytes.

use std::borrow::Cow;

use crate::envelope::{Envelope, JsonId};

/// Longer ones go by their hash: equal ones stay equal.
const TEXT_BYTES_MAX: usize = 256;

/// Returns an envelope that links to others as the given one does, in little memory.
pub(super) fn wieldy(envelope: &Envelope) -> Cow<'_, Envelope> {
    if is_wieldy(envelope) {
        return Cow::Borrowed(envelope);
    }
    let mut envelope = envelope.clone();
    shorten(&mut envelope);
    Cow::Owned(envelope)
}

fn is_wieldy(envelope: &Envelope) -> bool {
    let ties = &envelope.ties;
    let ids = [&envelope.id, &ties.progress_token, &ties.cancels, &ties.subscription];
    let texts = [&envelope.method, &envelope.name, &ties.request_state, &ties.task];
    ids.into_iter().flatten().all(|id| id.as_raw().len() <= TEXT_BYTES_MAX)
        && texts.into_iter().flatten().all(|text| text.len() <= TEXT_BYTES_MAX)
        && envelope.batch.iter().all(is_wieldy)
}

fn shorten(envelope: &mut Envelope) {
    let ties = &mut envelope.ties;
    let ids = [&mut envelope.id, &mut ties.progress_token, &mut ties.cancels, &mut ties.subscription];
    for id in ids.into_iter().flatten().filter(|id| id.as_raw().len() > TEXT_BYTES_MAX) {
        *id = JsonId::from_raw(&format!("{:?}", hash(id.as_raw())));
    }
    let texts = [&mut envelope.method, &mut envelope.name, &mut ties.request_state, &mut ties.task];
    for text in texts.into_iter().flatten().filter(|text| text.len() > TEXT_BYTES_MAX) {
        *text = hash(text);
    }
    envelope.batch.iter_mut().for_each(shorten);
}

fn hash(text: &str) -> String {
    format!("hash:{}", blake3::hash(text.as_bytes()).to_hex())
}
