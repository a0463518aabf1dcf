//! What is on no tape, until a tape says so: what was forwarded all the same apart from what was refused.

use scrubjay_core::entry::Gap;

/// Messages that are on no tape.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    forwarded: Option<Gap>,
    refused: Option<Gap>,
}

impl Gaps {
    /// Adds to what is missing; of several failures the first tells since when and why.
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

    /// Adds what turned out to be missing still.
    pub(super) fn add_all(&mut self, more: Self) {
        more.forwarded.into_iter().chain(more.refused).for_each(|gap| self.add(gap));
    }

    /// Returns how many entries tell of them.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.forwarded.is_some()) + u64::from(self.refused.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns what the entries say that tell of them.
    pub(super) fn facts(&self) -> Vec<Vec<u8>> {
        let gaps = self.forwarded.iter().chain(&self.refused);
        gaps.map(|gap| serde_json::to_vec(gap).expect("a gap is plain data")).collect()
    }
}
