//! Makes a redactor from a configuration: its rules, its names, and the patterns of the search over raw bytes.

use super::{PRIVATE_KEY, PatternMeaning, Redactor};
use crate::expression;
use crate::json::path::Path;
use crate::redact::action::RedactionAction;
use crate::redact::name::{AUTH_STEMS, Names, SENSITIVE, STEMS, normal, spellings};
use crate::redact::prefilter::{PatternKind, Prefilter};
use crate::redact::rules::{self, MethodParam, PatternError, RedactionPattern, RuleError};
use crate::redact::{RedactionConfig, control, detectors, encoded};

/// Names that are searched for in base64 too; each becomes up to nine patterns, for three cases and three phases.
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

/// Anchors that are too short to be searched for in base64, with the bytes that usually precede or follow them.
const BASE64_ANCHORS: &[&str] =
    &["s://", "l://", "b://", "p://", "v://", "eyJhbGci", "eyJ0eXAi", "eyJraWQi", "sk-proj-", "\"auth\""];

/// Bytes of percent-encoded text that may hold a name with its value, or a private key.
const PERCENT_ANCHORS: &[&str] = &["%22%3A", "%22%3a", "%22:%22", "BEGIN%20"];

/// Anchors of three bytes, which base64 cannot be searched for, and the bytes that usually precede them.
const SHORT_ANCHORS: &[&str] = &["sk-", "hf_", "SG.", "r8_"];
const BEFORE_SHORT: &[&str] = &[" ", "=", "\"", "\n", ":", "'"];

impl Redactor {
    /// Makes a redactor from a configuration.
    ///
    /// # Errors
    /// Some rules cannot be used; there is an error for each.
    pub fn new(config: &RedactionConfig) -> Result<Self, Vec<RuleError>> {
        let mut redactor = Self {
            enabled: config.redact_sensitive,
            filter: Prefilter::new(),
            meanings: Vec::new(),
            // Rule 0 is the one below, for names that are evidence but on no list.
            names: Names::new(true, 0),
            rules: vec![("telling-name".to_owned(), config.action.clone())],
            paths: Vec::new(),
            params: Vec::new(),
            regexes: Vec::new(),
            id_rule: None,
            key_rule: 0,
            always_parse: config.hash_ids,
            hash_key: config.hash_key.clone(),
        };
        // The user's rules come first, because the first rule for a name counts.
        let mut wrong = Vec::new();
        for (number, rule) in config.rules.iter().enumerate() {
            if let Err(what) = redactor.add_rule(rule) {
                wrong.push(RuleError { rule: number, what });
            }
        }
        for field in &config.sensitive_fields {
            // Also for a name on the built-in list, so that it is searched for with separators between any letters.
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

    fn rule(&mut self, name: &str, action: RedactionAction) -> u16 {
        self.rules.push((name.to_owned(), action));
        u16::try_from(self.rules.len() - 1).expect("a configuration has fewer rules")
    }

    fn add_name(&mut self, name: &str, rule_name: &str, action: RedactionAction, is_built_in: bool) {
        let rule = self.rule(rule_name, action);
        if is_built_in {
            // The search over raw bytes finds these by `STEMS`, which `add_built_in` adds.
            return self.names.list_built_in(name, rule);
        }
        self.names.list(name, rule);
        let name = normal(name);
        // Too short to be rare in raw bytes, or possibly escaped there: then every message is parsed.
        if name.len() < 4 || !name.is_ascii() {
            self.always_parse = true;
        } else {
            self.add_pattern(name.as_bytes(), PatternKind::Name, PatternMeaning::Name);
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

    /// Adds a pattern for a name that every message with a value at this path contains; without one, all are parsed.
    fn add_path_name(&mut self, path: &Path) {
        match path.required_name() {
            // Only a name that JSON can spell in one way is in the raw bytes as it is here.
            Some(name) if name.len() >= 3 && name.is_ascii() && !name.contains(['"', '\\', '/']) => {
                let name = name.to_owned();
                self.add_pattern(name.as_bytes(), PatternKind::Exact, PatternMeaning::PathName);
            }
            _ => self.always_parse = true,
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
                self.add_pattern(anchor.as_bytes(), kind, PatternMeaning::Format(detector, rule));
                self.add_base64_pattern(anchor);
                // Base64 changes with the case of each letter, so only the three usual cases are searched for.
                if detector.any_case {
                    self.add_base64_pattern(&anchor.to_ascii_uppercase());
                    self.add_base64_pattern(&titled(anchor));
                }
                // Some serialisers write every slash in JSON as `\/`.
                if anchor.contains('/') {
                    self.add_pattern(anchor.replace('/', r"\/").as_bytes(), kind, PatternMeaning::Slashed);
                }
                // Some encoders percent-encode `_` and `-` too, although they need not.
                if anchor.contains(['_', '-']) {
                    for (low, dash) in [("%5F", "%2D"), ("%5f", "%2d")] {
                        let coded = anchor.replace('_', low).replace('-', dash);
                        self.add_pattern(coded.as_bytes(), PatternKind::Exact, PatternMeaning::Percent);
                    }
                }
            }
        }
        for anchor in PERCENT_ANCHORS {
            self.add_pattern(anchor.as_bytes(), PatternKind::Exact, PatternMeaning::Percent);
        }
        for stem in AUTH_STEMS {
            self.add_pattern(stem.as_bytes(), PatternKind::Fold, PatternMeaning::Name);
        }
        for spelling in STEMS.iter().copied().flat_map(spellings) {
            self.add_pattern(spelling.as_bytes(), PatternKind::Fold, PatternMeaning::Name);
        }
        for name in BASE64_NAMES {
            for case in [name, titled(name).as_str(), &name.to_ascii_uppercase()] {
                self.add_base64_pattern(case);
            }
        }
        for anchor in BASE64_ANCHORS {
            self.add_base64_pattern(anchor);
        }
        for anchor in SHORT_ANCHORS {
            BEFORE_SHORT.iter().for_each(|before| self.add_base64_pattern(&format!("{before}{anchor}")));
        }
        // Telegram's anchor `:AA` is too short for base64, but a digit always precedes it.
        for digit in 0..10 {
            self.add_base64_pattern(&format!("{digit}:AA"));
        }
        self.add_pattern(control::ESCAPED, PatternKind::Exact, PatternMeaning::Escape);
        for spelled in control::SPELLED {
            self.add_pattern(spelled.as_bytes(), PatternKind::Exact, PatternMeaning::Control);
        }
    }

    fn add_pattern(&mut self, bytes: &[u8], kind: PatternKind, meaning: PatternMeaning) {
        let number = u16::try_from(self.meanings.len()).expect("there are few patterns");
        self.meanings.push(meaning);
        self.filter.add(bytes, kind, number);
    }

    fn add_base64_pattern(&mut self, text: &str) {
        for (phase, fragment) in encoded::fragments(text.as_bytes()).iter().enumerate() {
            // Shorter ones occur by chance in every image.
            if fragment.len() >= 4 {
                let fragment = &fragment[..fragment.len().min(8)];
                self.add_pattern(
                    fragment,
                    PatternKind::Exact,
                    PatternMeaning::Base64(encoded::PHASES[phase]),
                );
            }
        }
    }
}

/// Writes a name with a capital first letter.
fn titled(name: &str) -> String {
    let mut title = name.to_owned();
    title[..1].make_ascii_uppercase();
    title
}
