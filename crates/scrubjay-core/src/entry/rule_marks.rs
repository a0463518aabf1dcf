//! What rules did to a message, as its entry stores it: the names of the rules, their effects, and tags.

/// The longest name of a rule, and the longest tag.
const NAME_BYTES_MAX: usize = 64;

/// Tells whether a text can be the name of a rule, or a tag. Names are written to lists, tables and files without
/// quotes or escapes.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.:/".contains(&b);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// What rules did to a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleMarks<'a> {
    /// What they did.
    pub effects: RuleEffects,
    /// The names of the rules that applied, in their order, one a line.
    pub rules: &'a str,
    /// The tags they gave it, one a line.
    pub tags: &'a str,
}

impl<'a> RuleMarks<'a> {
    /// Tells whether rules changed, delayed or stopped the message, or made it.
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

/// What rules did to a message, as a set of five flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleEffects(u8);

impl RuleEffects {
    /// It was forwarded in another form.
    pub const CHANGED: Self = Self(1);
    /// It was not forwarded; or it is the error that replaces it.
    pub const BLOCKED: Self = Self(2);
    /// A rule answered it; or it is that answer.
    pub const MOCKED: Self = Self(4);
    /// It was forwarded after a delay.
    pub const DELAYED: Self = Self(8);

    /// It was not forwarded, because readers may read it in different ways; or it is the error that replaces it.
    pub const REFUSED: Self = Self(16);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::CHANGED, "changed"),
        (Self::BLOCKED, "blocked"),
        (Self::MOCKED, "mocked"),
        (Self::DELAYED, "delayed"),
        (Self::REFUSED, "refused"),
    ];

    /// Returns the effects of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Tells whether this set has all effects of the other.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the set as bits, as it is stored on a tape.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Reads bits; unknown ones, which a later version may write, are dropped.
    #[must_use]
    pub fn of_bits(bits: u8) -> Self {
        Self::NAMES.iter().fold(Self(0), |effects, (act, _)| Self(effects.0 | bits & act.0))
    }

    /// Lists the names of the effects.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        Self::NAMES.iter().filter(|(act, _)| self.has(*act)).map(|(_, name)| *name).collect()
    }

    /// Reads names; unknown ones are dropped.
    #[must_use]
    pub(crate) fn of_names<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let act = |name| Self::NAMES.iter().find(|(_, known)| *known == name).map(|(act, _)| *act);
        names.filter_map(act).fold(Self(0), Self::and)
    }
}

/// Appends a line, unless the text has it already.
pub(crate) fn add_line(lines: &mut String, line: &str) {
    if lines.lines().all(|known| known != line) {
        if !lines.is_empty() {
            lines.push('\n');
        }
        lines.push_str(line);
    }
}
