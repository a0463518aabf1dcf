//! What rules did to a message, as its entry tells it: the names of the rules, what they did, tags.

/// A rule's name or a tag is no longer than this.
pub const NAME_BYTES_MAX: usize = 64;

/// Tells whether a text can be the name of a rule, or a tag: it stands in lists, tables and files as it is.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.:/".contains(&b);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// What rules did to a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleMarks<'a> {
    /// What became of it.
    pub effects: RuleEffects,
    /// The names of the rules that applied, in their order, one a line.
    pub rules: &'a str,
    /// The tags they gave it, one a line.
    pub tags: &'a str,
}

impl<'a> RuleMarks<'a> {
    /// Tells whether it went on otherwise than it came, or later, or not at all; or was made here.
    #[must_use]
    pub fn is_intercepted(&self) -> bool {
        self.effects != RuleEffects::default()
    }

    /// Lists the names of the rules that applied.
    #[must_use]
    pub fn rule_names(&self) -> Vec<&'a str> {
        self.rules.lines().collect()
    }

    /// Lists the tags.
    #[must_use]
    pub fn tag_names(&self) -> Vec<&'a str> {
        self.tags.lines().collect()
    }
}

/// What became of a message: any of five things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleEffects(u8);

impl RuleEffects {
    /// It went on changed.
    pub const CHANGED: Self = Self(1);
    /// It did not go on; or it is the error that stands for it.
    pub const BLOCKED: Self = Self(2);
    /// It was answered from here; or it is that answer.
    pub const MOCKED: Self = Self(4);
    /// It went on later than it came.
    pub const DELAYED: Self = Self(8);

    /// It did not go on, because readers may differ on what it says; or it is the error that stands for it.
    pub const REFUSED: Self = Self(16);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::CHANGED, "changed"),
        (Self::BLOCKED, "blocked"),
        (Self::MOCKED, "mocked"),
        (Self::DELAYED, "delayed"),
        (Self::REFUSED, "refused"),
    ];

    /// Returns both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Tells whether all of another are among these.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns them as bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Reads bits; those nobody knows are left out.
    #[must_use]
    pub fn of_bits(bits: u8) -> Self {
        Self::NAMES.iter().fold(Self(0), |effects, (act, _)| Self(effects.0 | bits & act.0))
    }

    /// Lists their names.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        Self::NAMES.iter().filter(|(act, _)| self.has(*act)).map(|(_, name)| *name).collect()
    }

    /// Reads names; those nobody knows are left out.
    #[must_use]
    pub fn of_names<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let act = |name| Self::NAMES.iter().find(|(_, known)| *known == name).map(|(act, _)| *act);
        names.filter_map(act).fold(Self(0), Self::and)
    }
}

/// Adds a line to some, unless it is there.
pub(crate) fn add_line(lines: &mut String, line: &str) {
    if lines.lines().all(|known| known != line) {
        if !lines.is_empty() {
            lines.push('\n');
        }
        lines.push_str(line);
    }
}
