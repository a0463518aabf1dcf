//! Decides from the raw bytes of a message whether anything in it could be a secret, so that most messages are not parsed.

use std::cell::OnceCell;
use std::ops::{ControlFlow, Range};

use super::{Owner, PRIVATE_KEY, Redactor};
use crate::redact::control::{self, Stripped};
use crate::redact::{encoded, lines, text};

/// From this size on a message is looked at in parts, at the same time.
const LARGE_BYTES: usize = 1 << 20;
const PARTS: usize = 4;

impl Redactor {
    /// Looks at raw bytes: whether there is anything that parsing could show to be a secret.
    pub(in crate::redact) fn is_suspicious(&self, raw: &[u8]) -> bool {
        if self.always {
            return true;
        }
        if !self.regexes.is_empty()
            && (memchr::memchr(b'\\', raw).is_some()
                || self.regexes.iter().any(|(regex, _)| regex.is_match(raw)))
        {
            return true;
        }
        if control::are_in(raw) && self.is_suspicious_stripped(raw) {
            return true;
        }
        if raw.len() < LARGE_BYTES {
            return self.is_part_suspicious(raw, 0..raw.len());
        }
        // Whoever waits for a message of this size waits for this: all processors look.
        let part_bytes = raw.len().div_ceil(PARTS).next_multiple_of(2);
        let parts = (0..raw.len()).step_by(part_bytes).map(|at| at..raw.len().min(at + part_bytes));
        std::thread::scope(|scope| {
            let look = |part: Range<usize>| move || self.is_part_suspicious(raw, part);
            let mut looking = Vec::with_capacity(PARTS);
            let mut found = false;
            for part in parts {
                match std::thread::Builder::new().spawn_scoped(scope, look(part.clone())) {
                    Ok(one) => looking.push(one),
                    Err(_) => found |= self.is_part_suspicious(raw, part),
                }
            }
            // Where one could not look to its end, there may be anything.
            looking.into_iter().fold(found, |found, one| found | one.join().unwrap_or(true))
        })
    }

    fn is_part_suspicious(&self, raw: &[u8], part: Range<usize>) -> bool {
        // An escape of any kind changes what stands beside an anchor.
        let escaped = OnceCell::new();
        let escaped = || {
            *escaped.get_or_init(|| {
                memchr::memmem::find(raw, br"\/").is_some() || memchr::memmem::find(raw, br"\u00").is_some()
            })
        };
        let stripped = OnceCell::new();
        let stripped = || *stripped.get_or_init(|| self.is_suspicious_stripped(raw));
        let found = self.filter.hits_in(raw, part, |hit| {
            let suspicious = match self.owners[usize::from(hit.owner)] {
                // What goes by the raw bytes alone has words for anchors, which ordinary text has too.
                Owner::Format(detector, _) if detector.goes_by_raw_bytes() => detector.is_near(raw, hit.at),
                Owner::Format(detector, _) => {
                    !detector.find(raw, hit.at).is_empty()
                        || escaped()
                        || detector.name == PRIVATE_KEY && lines::may_begin_key(&raw[hit.at..])
                }
                Owner::Name => {
                    let name = text::name_at(raw, hit.at);
                    text::may_have_value(raw, &name) && self.names.tell(&raw[name]).is_some()
                }
                Owner::Base64(phase) => self.inside_base64(raw, hit.at, phase, 0).is_some() || escaped(),
                Owner::Escape => {
                    encoded::spells(raw, hit.at) || (control::is_escaped(raw, hit.at) && stripped())
                }
                Owner::Control => stripped(),
                Owner::Slashed | Owner::Percent | Owner::PathName => true,
            };
            if suspicious { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found.is_break()
    }

    /// Looks at raw bytes as a terminal shows them: without control sequences, and with a border where one stood.
    fn is_suspicious_stripped(&self, raw: &[u8]) -> bool {
        let Some(stripped) = Stripped::new(raw) else { return false };
        let found = self.filter.hits(&stripped.text, |hit| {
            let is_secret = !self.secrets_between(&stripped, hit).is_empty();
            if is_secret { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // Sequences that appear only once others are gone are nobody's accident: what hides so is looked at closely.
        found.is_break() || Stripped::new(&stripped.text).is_some() || self.is_suspicious(&stripped.text)
    }
}
