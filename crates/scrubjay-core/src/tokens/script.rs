//! Letters and signs beyond ASCII, and what they cost.

/// The groups of scripts beyond ASCII, by how many tokens their letters take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Latin,
    Cyrillic,
    Arabic,
    Indic,
    Hangul,
    Kana,
    Han,
    Rare,
    Sign,
}

impl Script {
    pub(super) fn of(c: char) -> Self {
        match u32::from(c) {
            0x370..=0x52f => Self::Cyrillic,
            0x590..=0x6ff => Self::Arabic,
            0x900..=0xdff => Self::Indic,
            0x3041..=0x30ff => Self::Kana,
            0x3400..=0x9fff => Self::Han,
            0xac00..=0xd7af => Self::Hangul,
            ..=0x24f if c.is_alphabetic() => Self::Latin,
            _ if c.is_alphabetic() => Self::Rare,
            _ => Self::Sign,
        }
    }

    pub(super) fn goes_with(self, first: Self) -> bool {
        let is_japanese = |script| matches!(script, Self::Kana | Self::Han);
        self == first || is_japanese(self) && is_japanese(first)
    }

    /// Returns the cost of this many letters in a row.
    pub(super) fn cost(self, count: u64) -> u64 {
        match self {
            // Usually within a word of ASCII letters, which is counted already.
            Self::Latin => 45 * count,
            Self::Cyrillic => 70 + 22 * count,
            Self::Arabic => 55 + 31 * count,
            Self::Indic => 60 + 40 * count,
            Self::Hangul => 90 + 42 * count,
            Self::Kana => 70 + 58 * count,
            Self::Han => 60 + 62 * count,
            Self::Rare => 200 * count,
            Self::Sign => 100 + count.saturating_sub(1) * 10,
        }
    }
}
