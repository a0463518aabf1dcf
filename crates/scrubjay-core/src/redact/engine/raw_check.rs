//! Decides from the raw bytes of a message whether it may hold a secret, so that most messages are not parsed.
//!
//! A false alarm costs time, a miss leaks a secret: whatever `edits` would find must be suspicious here.

use std::cell::OnceCell;
use std::ops::{ControlFlow, Range};

use super::{PRIVATE_KEY, PatternMeaning, Redactor};
use crate::redact::control::{self, Stripped};
use crate::redact::{encoded, lines, text};

/// Messages of at least this size are searched in parts, in parallel, so that their receiver waits less.
const LARGE_BYTES: usize = 1 << 20;
/// The number of these parts.
const PARTS: usize = 4;

impl Redactor {
    /// Tells whether parsing these raw bytes could reveal a secret.
    pub(in crate::redact) fn is_suspicious(&self, raw: &[u8]) -> bool {
        if self.always_parse {
            return true;
        }
        if !self.regexes.is_empty()
            // A user's expression is applied to decoded text, which differs from the raw bytes where they have
            // escapes.
            && (memchr::memchr(b'\\', raw).is_some()
                || self.regexes.iter().any(|(regex, _)| regex.is_match(raw)))
        {
            return true;
        }
        if control::has_control_bytes(raw) && self.is_suspicious_stripped(raw) {
            return true;
        }
        if raw.len() < LARGE_BYTES {
            return self.is_part_suspicious(raw, 0..raw.len());
        }
        // The message is forwarded only after this, so several processors search it. Parts begin at even positions,
        // because the filter looks at every second one.
        let part_bytes = raw.len().div_ceil(PARTS).next_multiple_of(2);
        let parts = (0..raw.len()).step_by(part_bytes).map(|at| at..raw.len().min(at + part_bytes));
        std::thread::scope(|scope| {
            let search = |part: Range<usize>| move || self.is_part_suspicious(raw, part);
            let mut threads = Vec::with_capacity(PARTS);
            let mut found = false;
            for part in parts {
                match std::thread::Builder::new().spawn_scoped(scope, search(part.clone())) {
                    Ok(thread) => threads.push(thread),
                    // The system has no thread left, so the part is searched here.
                    Err(_) => found |= self.is_part_suspicious(raw, part),
                }
            }
            // A thread that panicked has not searched its part, so that part counts as suspicious.
            threads.into_iter().fold(found, |found, thread| found | thread.join().unwrap_or(true))
        })
    }

    fn is_part_suspicious(&self, raw: &[u8], part: Range<usize>) -> bool {
        // With escapes in the message, the raw bytes beside an anchor need not be those of the secret.
        let escaped = OnceCell::new();
        let escaped = || {
            *escaped.get_or_init(|| {
                memchr::memmem::find(raw, br"\/").is_some() || memchr::memmem::find(raw, br"\u00").is_some()
            })
        };
        // Both checks read the whole message, so each is made at most once for a part.
        let stripped = OnceCell::new();
        let stripped = || *stripped.get_or_init(|| self.is_suspicious_stripped(raw));
        let found = self.filter.hits_in(raw, part, |hit| {
            let suspicious = match self.meanings[usize::from(hit.id)] {
                // These have ordinary words as anchors, so escapes elsewhere in the message must not make them
                // suspicious.
                PatternMeaning::Format(detector, _) if detector.has_precheck() => {
                    detector.may_be_here(raw, hit.at)
                }
                PatternMeaning::Format(detector, _) => {
                    !detector.find(raw, hit.at).is_empty()
                        || escaped()
                        || detector.name == PRIVATE_KEY && lines::may_begin_key(&raw[hit.at..])
                }
                PatternMeaning::Name => {
                    // Logs and code are full of such names; only one that may have a value is worth a parse.
                    let name = text::name_at(raw, hit.at);
                    text::may_have_value(raw, &name) && self.names.evidence(&raw[name]).is_some()
                }
                PatternMeaning::Base64(phase) => {
                    self.inside_base64(raw, hit.at, phase, 0).is_some() || escaped()
                }
                PatternMeaning::Escape => {
                    encoded::spells_token_character(raw, hit.at)
                        || (control::is_escaped(raw, hit.at) && stripped())
                }
                PatternMeaning::Control => stripped(),
                // Only parsed or decoded text can show whether there is a secret.
                PatternMeaning::Slashed | PatternMeaning::Percent | PatternMeaning::PathName => true,
            };
            if suspicious { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found.is_break()
    }

    /// The same for raw bytes as a terminal shows them: without control sequences, with a border where one was removed.
    fn is_suspicious_stripped(&self, raw: &[u8]) -> bool {
        let Some(stripped) = Stripped::new(raw) else { return false };
        let found = self.filter.hits(&stripped.text, |hit| {
            let is_secret = !self.secrets_between(&stripped, hit).is_empty();
            if is_secret { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // Sequences that appear only after others are removed are written on purpose, so such a message is parsed.
        found.is_break() || Stripped::new(&stripped.text).is_some() || self.is_suspicious(&stripped.text)
    }
}
