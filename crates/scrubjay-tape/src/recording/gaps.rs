//! Messages that could not be recorded, until a tape can note them: forwarded ones and refused ones apart.

use scrubjay_core::entry::Gap;

/// Messages that are on no tape.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    forwarded: Option<Gap>,
    refused: Option<Gap>,
}

impl Gaps {
    /// Adds missing messages. Of several failures the first one's time and reason are kept.
    pub(super) fn add(&mut self, more: Gap) {
        let gap = if more.forwarded { &mut self.forwarded } else { &mut self.refused };
        match gap {
            Some(gap) => {
                gap.messages += more.messages;
                gap.bytes += more.bytes;
            }
            None => *gap = Some(more),
        }
    }

    /// Adds all gaps of another.
    pub(super) fn add_all(&mut self, more: Self) {
        more.forwarded.into_iter().chain(more.refused).for_each(|gap| self.add(gap));
    }

    /// Returns how many entries will report them.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.forwarded.is_some()) + u64::from(self.refused.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the payloads of the entries that report them.
    pub(super) fn facts(&self) -> Vec<Vec<u8>> {
        let gaps = self.forwarded.iter().chain(&self.refused);
        gaps.map(|gap| serde_json::to_vec(gap).expect("a gap is plain data")).collect()
    }
}
