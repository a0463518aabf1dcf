//! Decides whether there is anything to do, and puts what is left in its place.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::{ControlFlow, Range};

use regex::bytes::Regex;

use super::action::{RedactionAction, RedactionKey, Replacement, is_mark};
use super::control::{self, Stripped};
use super::detectors::{self, Detector};
use super::encoded;
use super::lines::{self, KeyLines};
use super::name::{Names, PAIR_STEMS, SENSITIVE, STEMS, normal, spellings};
use super::prefilter::{PatternHit, PatternKind, Prefilter};
use super::rules::{self, MethodParam, PatternError, RedactionPattern, RuleError};
use super::walk::Walk;
use super::{Redacted, RedactionConfig, RedactionFinding, text};
use crate::expression;
use crate::json::edit;
use crate::json::escape::{Unescaped, escape};
use crate::json::path::Path;

/// Clothes upon clothes (JSON in strings, base64) are looked into so deep.
const DEPTH_MAX: usize = 6;

/// From this size on a message is looked at in parts, at the same time.
const LARGE_BYTES: usize = 1 << 20;
const PARTS: usize = 4;

/// Names that are looked for in base64 too.
const BASE64_NAMES: &[&str] = &[
    "password",
    "secret",
    "token",
    "api_key",
    "apiKey",
    "private_key",
    "access_key",
    "authorization",
    "cookie",
    "apikey",
    "api-key",
    "Api-Key",
    "passwd",
    "passphrase",
    "\"pwd\"",
    "pwd=",
    "pwd:",
];

/// Anchors that are too short to be looked for in base64, with what goes before or behind them.
const BASE64_ANCHORS: &[&str] =
    &["s://", "l://", "b://", "p://", "v://", "eyJhbGci", "eyJ0eXAi", "eyJraWQi", "sk-proj-", "\"auth\""];

/// What stands in a percent-encoded text that may hold a name with its value, or a private key.
const PERCENT_ANCHORS: &[&str] = &["%22%3A", "%22%3a", "%22:%22", "BEGIN%20"];

/// Anchors of three bytes, and what mostly stands before them.
const SHORT_ANCHORS: &[&str] = &["sk-", "hf_", "SG.", "r8_"];
const BEFORE_SHORT: &[&str] = &[" ", "=", "\"", "\n", ":", "'"];

/// The name of the detectors of private keys.
const PRIVATE_KEY: &str = "private-key";

/// Who a pattern of the search belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// A format, and the number of its rule.
    Format(&'static Detector, u16),
    /// A name that tells.
    Name,
    /// Base64 of either, in this phase of its groups.
    Base64(usize),
    /// An escape that may spell a letter or a control character.
    Escape,
    /// A terminal control sequence that is spelled out.
    Control,
    /// An anchor whose slashes are escaped.
    Slashed,
    /// An anchor that is percent-encoded, or something else that tells of such a text.
    Percent,
    /// The name at the end of a path.
    PathName,
}

/// Finds secrets, and takes them out.
#[derive(Debug)]
pub struct Redactor {
    enabled: bool,
    filter: Prefilter,
    owners: Vec<Owner>,
    pub(super) names: Names,
    rules: Vec<(String, RedactionAction)>,
    pub(super) paths: Vec<(Path, u16)>,
    pub(super) params: Vec<(MethodParam, u16)>,
    regexes: Vec<(Regex, u16)>,
    pub(super) id_rule: Option<u16>,
    /// The rule for the lines of a private key.
    pub(super) key_rule: u16,
    /// Some rule cannot be searched for in raw bytes.
    always: bool,
    hash_key: RedactionKey,
}

/// Something to put in the place of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) with: String,
    pub(super) rule: u16,
    /// Where in a JSON text it stands, if anybody asks.
    pub(super) place: String,
}

impl Redactor {
    /// Compiles a configuration.
    ///
    /// # Errors
    /// Some rules cannot be used: all of them are told.
    pub fn new(config: &RedactionConfig) -> Result<Self, Vec<RuleError>> {
        let mut redactor = Self {
            enabled: config.redact_sensitive,
            filter: Prefilter::new(),
            owners: Vec::new(),
            names: Names::new(true, 0),
            rules: vec![("telling-name".to_owned(), config.action.clone())],
            paths: Vec::new(),
            params: Vec::new(),
            regexes: Vec::new(),
            id_rule: None,
            key_rule: 0,
            always: config.hash_ids,
            hash_key: config.hash_key.clone(),
        };
        let mut wrong = Vec::new();
        for (number, rule) in config.rules.iter().enumerate() {
            if let Err(what) = redactor.add_rule(rule) {
                wrong.push(RuleError { rule: number, what });
            }
        }
        for field in &config.sensitive_fields {
            // A name on both lists is looked for in all its spellings.
            redactor.add_name(field, field, config.action.clone(), false);
        }
        for field in SENSITIVE {
            redactor.add_name(field, field, config.action.clone(), true);
        }
        if config.hash_ids {
            redactor.id_rule = Some(redactor.rule("hash-ids", RedactionAction::Hash));
        }
        redactor.add_built_in(&config.action);
        if wrong.is_empty() { Ok(redactor) } else { Err(wrong) }
    }

    /// Makes the redactor that goes by the built-in names and formats.
    #[must_use]
    pub fn standard() -> Self {
        Self::new(&RedactionConfig::default()).expect("no rule, no wrong rule")
    }

    fn rule(&mut self, name: &str, action: RedactionAction) -> u16 {
        self.rules.push((name.to_owned(), action));
        u16::try_from(self.rules.len() - 1).expect("a configuration has fewer rules")
    }

    fn add_name(&mut self, name: &str, rule_name: &str, action: RedactionAction, is_built_in: bool) {
        let rule = self.rule(rule_name, action);
        if is_built_in {
            return self.names.list_built_in(name, rule);
        }
        self.names.list(name, rule);
        let name = normal(name);
        if name.len() < 4 || !name.is_ascii() {
            self.always = true;
        } else {
            self.own(name.as_bytes(), PatternKind::Name, Owner::Name);
        }
    }

    fn add_rule(&mut self, rule: &rules::RedactionRule) -> Result<(), PatternError> {
        rule.pattern.check()?;
        let action = rule.action.clone();
        match &rule.pattern {
            RedactionPattern::Field(name) => self.add_name(name, &rule.name, action, false),
            RedactionPattern::Path(text) => {
                let path = Path::parse(text).map_err(PatternError::Path)?;
                self.add_path_name(&path);
                let number = self.rule(&rule.name, action);
                self.paths.push((path, number));
            }
            RedactionPattern::Regex(text) => {
                let regex = expression::finding(text).map_err(PatternError::Regex)?;
                let number = self.rule(&rule.name, action);
                self.regexes.push((regex, number));
            }
            RedactionPattern::MethodParam { method, param } => {
                let param = MethodParam::new(method, param)?;
                self.add_path_name(&param.path);
                let number = self.rule(&rule.name, action);
                self.params.push((param, number));
            }
        }
        Ok(())
    }

    fn add_path_name(&mut self, path: &Path) {
        match path.telling_name() {
            Some(name) if name.len() >= 3 && name.is_ascii() && !name.contains(['"', '\\', '/']) => {
                let name = name.to_owned();
                self.own(name.as_bytes(), PatternKind::Exact, Owner::PathName);
            }
            _ => self.always = true,
        }
    }

    fn add_built_in(&mut self, action: &RedactionAction) {
        for detector in detectors::all() {
            let rule = self.rule(detector.name, action.clone());
            if detector.name == PRIVATE_KEY {
                self.key_rule = rule;
            }
            for anchor in detector.anchors {
                let kind = if detector.any_case { PatternKind::Fold } else { PatternKind::Exact };
                self.own(anchor.as_bytes(), kind, Owner::Format(detector, rule));
                self.own_base64(anchor);
                if detector.any_case {
                    self.own_base64(&anchor.to_ascii_uppercase());
                    self.own_base64(&titled(anchor));
                }
                if anchor.contains('/') {
                    self.own(anchor.replace('/', r"\/").as_bytes(), kind, Owner::Slashed);
                }
                if anchor.contains(['_', '-']) {
                    for (low, dash) in [("%5F", "%2D"), ("%5f", "%2d")] {
                        let coded = anchor.replace('_', low).replace('-', dash);
                        self.own(coded.as_bytes(), PatternKind::Exact, Owner::Percent);
                    }
                }
            }
        }
        for anchor in PERCENT_ANCHORS {
            self.own(anchor.as_bytes(), PatternKind::Exact, Owner::Percent);
        }
        for stem in PAIR_STEMS {
            self.own(stem.as_bytes(), PatternKind::Fold, Owner::Name);
        }
        for spelling in STEMS.iter().copied().flat_map(spellings) {
            self.own(spelling.as_bytes(), PatternKind::Fold, Owner::Name);
        }
        for name in BASE64_NAMES {
            for case in [name, titled(name).as_str(), &name.to_ascii_uppercase()] {
                self.own_base64(case);
            }
        }
        for anchor in BASE64_ANCHORS {
            self.own_base64(anchor);
        }
        for anchor in SHORT_ANCHORS {
            BEFORE_SHORT.iter().for_each(|before| self.own_base64(&format!("{before}{anchor}")));
        }
        for digit in 0..10 {
            self.own_base64(&format!("{digit}:AA"));
        }
        self.own(control::ESCAPED, PatternKind::Exact, Owner::Escape);
        for spelled in control::SPELLED {
            self.own(spelled.as_bytes(), PatternKind::Exact, Owner::Control);
        }
    }

    fn own(&mut self, bytes: &[u8], kind: PatternKind, owner: Owner) {
        let number = u16::try_from(self.owners.len()).expect("there are few patterns");
        self.owners.push(owner);
        self.filter.add(bytes, kind, number);
    }

    fn own_base64(&mut self, text: &str) {
        for (phase, fragment) in encoded::fragments(text.as_bytes()).iter().enumerate() {
            // Shorter ones stand in every picture.
            if fragment.len() >= 4 {
                let fragment = &fragment[..fragment.len().min(8)];
                self.own(fragment, PatternKind::Exact, Owner::Base64(encoded::PHASES[phase]));
            }
        }
    }

    /// Tells whether it does anything.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Takes the secrets out of a message or line.
    #[must_use]
    pub fn redact<'a>(&self, raw: &'a [u8]) -> Redacted<'a> {
        if !self.enabled || !self.is_suspicious(raw) {
            return Redacted(Cow::Borrowed(raw));
        }
        let edits = self.edits(raw, 0, false);
        Redacted(if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) })
    }

    /// Takes the secrets out of a message that may go on with a private key of the lines before; none where it is no JSON.
    pub(super) fn redact_message<'a>(&self, raw: &'a [u8], keys: &mut KeyLines) -> Option<Redacted<'a>> {
        let (edits, left) = Walk::new(self, raw, 0, false)?.edits_behind(std::mem::take(keys));
        *keys = left;
        let edits = merge(edits);
        Some(Redacted(if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) }))
    }

    /// The same, and says what was taken out.
    #[must_use]
    pub fn explain<'a>(&self, raw: &'a [u8]) -> (Redacted<'a>, Vec<RedactionFinding>) {
        let edits = if self.enabled { self.edits(raw, 0, true) } else { Vec::new() };
        let findings = edits.iter().map(|edit| RedactionFinding {
            rule: self.rules[usize::from(edit.rule)].0.clone(),
            place: if edit.place.is_empty() {
                format!("byte {}", edit.range.start)
            } else {
                edit.place.clone()
            },
            bytes: edit.range.len(),
            range: edit.range.clone(),
        });
        let findings = findings.collect();
        let redacted = if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) };
        (Redacted(redacted), findings)
    }

    /// Takes the secrets out of a text.
    #[must_use]
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact(text.as_bytes()).0 {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Looks at raw bytes: whether there is anything that parsing could show to be a secret.
    pub(super) fn is_suspicious(&self, raw: &[u8]) -> bool {
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

    /// Finds what to put where, in a text that may be JSON.
    pub(super) fn edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let edits = match Walk::new(self, text, depth, explain) {
            Some(walk) => walk.edits(),
            None => self.plain_edits(text, depth, explain),
        };
        merge(edits)
    }

    /// Finds what to put where in running text.
    pub(super) fn plain_edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut base64_done = 0;
        let (mut spelled, mut percent) = (false, false);
        let mut has_controls = control::are_in(text);
        let _ = self.filter.hits(text, |hit| {
            match self.owners[usize::from(hit.owner)] {
                Owner::Escape => {
                    spelled |= encoded::spells(text, hit.at);
                    has_controls |= control::is_escaped(text, hit.at);
                }
                Owner::Control => has_controls = true,
                Owner::Slashed => spelled = true,
                Owner::Percent => percent = true,
                _ => {}
            }
            let found = self.secrets_at(text, hit, &mut base64_done, depth);
            self.push_edits(text, found, &mut edits);
            ControlFlow::Continue(())
        });
        for (regex, rule) in &self.regexes {
            let found = regex.find_iter(text).map(|found| found.range());
            edits.extend(found.filter(|r| !self.is_done(text, r, *rule)).map(|r| self.edit(text, r, *rule)));
        }
        if spelled && depth < DEPTH_MAX {
            let plain = Unescaped::new(text);
            edits.extend(
                self.edits(&plain.text, depth + 1, explain).into_iter().map(|edit| edit.led_back(&plain)),
            );
        }
        if percent && depth < DEPTH_MAX {
            let plain = Unescaped::percent(text);
            edits.extend(self.plain_edits(&plain.text, depth + 1, explain).into_iter().map(|mut edit| {
                edit.range = plain.original(&edit.range);
                edit
            }));
        }
        if has_controls && depth < DEPTH_MAX {
            edits.extend(self.stripped_edits(text, depth, explain));
        }
        merge(edits)
    }

    /// Finds what to put where in a text as a terminal shows it.
    fn stripped_edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let Some(stripped) = Stripped::new(text) else { return Vec::new() };
        let mut edits = self.edits(&stripped.text, depth + 1, explain);
        let _ = self.filter.hits(&stripped.text, |hit| {
            self.push_edits(&stripped.text, self.secrets_between(&stripped, hit), &mut edits);
            ControlFlow::Continue(())
        });
        for edit in &mut edits {
            edit.range = stripped.original(&edit.range);
        }
        // A sequence that takes the bracket of a mark for its end makes a value of the rest of it.
        edits.retain(|edit| edit.range.is_empty() || !self.is_done(text, &edit.range, edit.rule));
        edits
    }

    /// Adds what to put in the place of secrets, but for those that were taken out already.
    fn push_edits(&self, text: &[u8], found: Vec<(Range<usize>, u16)>, edits: &mut Vec<Edit>) {
        let new = found.into_iter().filter(|(range, rule)| !self.is_done(text, range, *rule));
        edits.extend(new.map(|(range, rule)| self.edit(text, range, rule)));
    }

    /// Returns the secrets at a place of a text without control sequences, where those are taken for their borders.
    fn secrets_between(&self, stripped: &Stripped, hit: PatternHit) -> Vec<(Range<usize>, u16)> {
        match self.owners[usize::from(hit.owner)] {
            Owner::Format(detector, rule) => with_rule(stripped.find(detector, hit.at), rule),
            Owner::Name => {
                let begin = stripped.border(hit.at);
                let found = text::value_of(&stripped.text[begin..], hit.at - begin, &self.names);
                let moved = found.map(|(range, telling)| {
                    (begin + range.start..begin + range.end, self.names.rule_of(telling))
                });
                moved.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn secrets_at(
        &self,
        text: &[u8],
        hit: PatternHit,
        base64_done: &mut usize,
        depth: usize,
    ) -> Vec<(Range<usize>, u16)> {
        let found = match self.owners[usize::from(hit.owner)] {
            Owner::Format(detector, rule) => return with_rule(detector.find(text, hit.at), rule),
            Owner::Name => text::value_of(text, hit.at, &self.names)
                .map(|(range, telling)| (range, self.names.rule_of(telling))),
            Owner::Base64(phase) if hit.at >= *base64_done => {
                let found = self.inside_base64(text, hit.at, phase, depth);
                *base64_done = found.as_ref().map_or(*base64_done, |(range, _)| range.end);
                found
            }
            Owner::Base64(_)
            | Owner::Escape
            | Owner::Control
            | Owner::Slashed
            | Owner::Percent
            | Owner::PathName => None,
        };
        found.into_iter().collect()
    }

    /// Looks into the base64 around a place; returns the whole of it, where there is a secret in it.
    fn inside_base64(
        &self,
        text: &[u8],
        at: usize,
        phase: usize,
        depth: usize,
    ) -> Option<(Range<usize>, u16)> {
        if depth >= DEPTH_MAX {
            return None;
        }
        let (digits, place) = encoded::digits_near(text, at);
        // Groups are counted back from the place, without the ends of lines.
        let skipped = (place + 4 - phase % 4) % 4;
        let data = encoded::decode(digits.get(skipped..)?);
        let first = self.edits(&data, depth + 1, false).into_iter().next()?;
        Some((encoded::run(text, at), first.rule))
    }

    /// Tells whether what was found is what redaction left, or part of it.
    fn is_done(&self, text: &[u8], range: &Range<usize>, rule: u16) -> bool {
        if self.rules[usize::from(rule)].1.is_done(&text[range.clone()]) {
            return true;
        }
        let before = &text[range.start.saturating_sub(80)..range.start];
        let open = before.iter().rposition(|b| *b == b'[').map(|i| range.start - before.len() + i);
        open.is_some_and(|open| {
            let close = memchr::memchr(b']', &text[range.end - 1..]).map(|i| range.end + i);
            close.is_some_and(|close| close - open < 100 && is_mark(&text[open..close]))
        })
    }

    pub(super) fn edit(&self, text: &[u8], range: Range<usize>, rule: u16) -> Edit {
        let with = match self.left(rule, &text[range.clone()]) {
            Replacement::Nothing => String::new(),
            Replacement::Text(text) => text,
            Replacement::Json(value) => value.to_string(),
        };
        Edit { range, with, rule, place: String::new() }
    }

    /// Applies a rule's action to a value.
    pub(super) fn left(&self, rule: u16, value: &[u8]) -> Replacement {
        let (name, action) = &self.rules[usize::from(rule)];
        action.apply(name, value, &self.hash_key)
    }

    /// Returns what a rule does.
    pub(super) fn action(&self, rule: u16) -> &RedactionAction {
        &self.rules[usize::from(rule)].1
    }
}

impl Edit {
    /// Leads an edit of a text without escapes back to the original.
    pub(super) fn led_back(mut self, plain: &Unescaped<'_>) -> Self {
        self.range = plain.original(&self.range);
        self.with = escape(&self.with);
        self
    }
}

fn with_rule(found: Vec<Range<usize>>, rule: u16) -> Vec<(Range<usize>, u16)> {
    found.into_iter().map(|range| (range, rule)).collect()
}

/// Writes a name with a capital at its beginning.
fn titled(name: &str) -> String {
    let mut title = name.to_owned();
    title[..1].make_ascii_uppercase();
    title
}

/// Makes edits that touch one.
fn merge(mut edits: Vec<Edit>) -> Vec<Edit> {
    edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end), edit.rule));
    let mut merged: Vec<Edit> = Vec::with_capacity(edits.len());
    for edit in edits {
        match merged.last_mut() {
            Some(last) if edit.range.start < last.range.end => {
                last.range.end = last.range.end.max(edit.range.end);
            }
            _ => merged.push(edit),
        }
    }
    merged
}

fn apply(raw: &[u8], edits: &[Edit]) -> Vec<u8> {
    edit::apply(raw, edits.iter().map(|edit| (edit.range.clone(), edit.with.as_bytes())))
}
