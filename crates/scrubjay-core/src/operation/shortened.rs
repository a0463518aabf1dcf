//! Shortens ids and names so that tables can keep them: a peer may send megabytes.

use std::borrow::Cow;

use crate::envelope::{Envelope, JsonId};

/// The longest id, token or state that is kept as it is. Longer ones are replaced by their hash, so that equal ones
/// stay equal; real ones are numbers and UUIDs.
const KEY_BYTES_MAX: usize = 256;
/// The longest method or name that is kept as it is; of longer ones the beginning and the hash are kept. More than for
/// ids, because addresses of resources may have hundreds of bytes, and people read them.
const NAME_BYTES_MAX: usize = 1024;
/// How many characters of such a name are kept.
const NAME_CHARS_KEPT: usize = 64;

/// Returns an envelope that links to others as the given one does, but has no long strings.
pub(super) fn shortened(envelope: &Envelope) -> Cow<'_, Envelope> {
    if is_short(envelope) {
        return Cow::Borrowed(envelope);
    }
    let mut envelope = envelope.clone();
    shorten(&mut envelope);
    Cow::Owned(envelope)
}

fn is_short(envelope: &Envelope) -> bool {
    let references = &envelope.references;
    let ids = [&envelope.id, &references.progress_token, &references.cancels, &references.subscription];
    let keys = [&references.request_state, &references.task];
    let names = [&envelope.method, &envelope.name];
    ids.into_iter().flatten().all(|id| id.as_raw().len() <= KEY_BYTES_MAX)
        && keys.into_iter().flatten().all(|key| key.len() <= KEY_BYTES_MAX)
        && names.into_iter().flatten().all(|name| name.len() <= NAME_BYTES_MAX)
        && envelope.batch.iter().all(is_short)
}

fn shorten(envelope: &mut Envelope) {
    let references = &mut envelope.references;
    let ids = [
        &mut envelope.id,
        &mut references.progress_token,
        &mut references.cancels,
        &mut references.subscription,
    ];
    for id in ids.into_iter().flatten() {
        *id = short_id(id).into_owned();
    }
    let keys = [&mut references.request_state, &mut references.task];
    for key in keys.into_iter().flatten().filter(|key| key.len() > KEY_BYTES_MAX) {
        *key = hash(key);
    }
    let names = [&mut envelope.method, &mut envelope.name];
    for name in names.into_iter().flatten().filter(|name| name.len() > NAME_BYTES_MAX) {
        let beginning: String = name.chars().take(NAME_CHARS_KEPT).collect();
        *name = format!("{beginning}… {}", hash(name));
    }
    envelope.batch.iter_mut().for_each(shorten);
}

/// Returns an id, or the hash of a long one as an id.
pub(crate) fn short_id(id: &JsonId) -> Cow<'_, JsonId> {
    if id.as_raw().len() <= KEY_BYTES_MAX {
        return Cow::Borrowed(id);
    }
    Cow::Owned(JsonId::from_raw(&format!("{:?}", hash(id.as_raw()))))
}

fn hash(text: &str) -> String {
    format!("hash:{}", blake3::hash(text.as_bytes()).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ids_are_shortened_and_equal_ids_stay_equal() {
        let long = "x".repeat(2000);
        let read = |tail: &str| {
            let line = format!(
                r#"[{{"id":"{long}{tail}","method":"tools/call","params":{{"name":"{long}","requestState":"{long}","_meta":{{"progressToken":"{long}{tail}"}}}}}}]"#
            );
            shortened(&Envelope::parse(line.as_bytes())).into_owned()
        };
        let (one, two, same) = (read("1"), read("2"), read("1"));
        assert!(is_short(&one));
        assert_eq!(one, same);
        assert!(one.batch[0].name.as_ref().is_some_and(|name| name.starts_with("xxxx") && name.len() < 200));
        assert_ne!(one.batch[0].id, two.batch[0].id);
        assert_ne!(one.batch[0].references.progress_token, two.batch[0].references.progress_token);
        assert_eq!(one.batch[0].references.request_state, two.batch[0].references.request_state);
        let short = Envelope::parse(br#"{"id":1,"method":"ping"}"#);
        assert!(matches!(shortened(&short), Cow::Borrowed(_)));
    }
}
