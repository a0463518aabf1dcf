//! The configuration in force: the values of all layers together. The methods that turn a section into what a crate needs
//! are beside the section, in the files of `sections`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use scrubjay_gateway::config::BackendConfig;

use crate::SourceFile;
use crate::cursor;
use crate::layer::Layer;
use crate::node::Origin;
use crate::options;
use crate::problem::{ConfigError, Problem};
use crate::section::{self, Part};
use crate::sections::{LogLevel, Settings};
use crate::setting::ShownSetting;

/// The shortest secret that the logs hide: shorter ones occur in ordinary words.
const SECRET_CHARS_MIN: usize = 8;

/// The configuration in force. It has no `Debug`, because it may hold secrets.
#[derive(Clone)]
pub struct Loaded {
    /// Notices for a person.
    pub notices: Vec<String>,
    /// The notice for a command that uses little more than the data directory: an untrusted file names another one.
    pub data_notice: Option<String>,
    /// The files that were looked for, and which of them are used.
    pub files: Vec<SourceFile>,
    pub(crate) settings: Settings,
    /// All layers together.
    pub(crate) layers: Layer,
    /// The layers below a client's options.
    below: Layer,
    /// The layers above them.
    above: Layer,
    pub(crate) base: BasePaths,
}

/// Where relative paths and the data directory start from.
#[derive(Clone)]
pub(crate) struct BasePaths {
    /// The working directory.
    pub(crate) directory: PathBuf,
    pub(crate) default_data: Option<PathBuf>,
    pub(crate) tell: fn(&str),
}

impl Loaded {
    /// Puts checked layers together.
    pub(crate) fn new(
        below: Layer,
        above: Layer,
        base: BasePaths,
        files: Vec<SourceFile>,
        notices: Vec<String>,
    ) -> Self {
        let mut layers = below.clone();
        layers.put_over(&above);
        let settings = Settings::value(&layers, "");
        let data_notice = None;
        let mut loaded = Self { notices, data_notice, files, settings, layers, below, above, base };
        loaded.notices.extend(loaded.limit_notices());
        loaded
    }

    /// Puts a client's `initializationOptions` between the files and the environment.
    ///
    /// # Errors
    /// Some are wrong. The problems serialize as `{path, message}`: they are the data of the error -32602.
    pub fn with_options(&self, options: &serde_json::Value) -> Result<Self, Vec<Problem>> {
        let mut options = options::parse(options)?;
        let notice = options::keep_warnings(&mut options, self.log_level());
        let mut below = self.below.clone();
        below.put_over(&options);
        let notices = notice.into_iter().collect();
        Ok(Self::new(below, self.above.clone(), self.base.clone(), self.files.clone(), notices))
    }

    /// Returns a problem for each option that differs from this configuration, for a client that may change nothing.
    pub fn refused_options(&self, options: &serde_json::Value) -> Vec<Problem> {
        options::parse(options)
            .map_or_else(|problems| problems, |options| options::changes_of(&options, &self.settings))
    }

    /// Returns how much is logged.
    pub fn log_level(&self) -> LogLevel {
        self.settings.log_level
    }

    /// Returns the backends in the order of the file.
    pub fn backends(&self) -> &[BackendConfig] {
        self.settings.backends.as_ref().map_or(&[], |backends| &backends.list)
    }

    /// Returns the keys whose values differ in another configuration.
    pub fn differing_keys(&self, other: &Self) -> Vec<String> {
        let values = |loaded: &Self| -> BTreeSet<_> {
            let shown = loaded.shown().into_iter();
            shown.map(|shown| (shown.key, shown.value.to_string(), shown.hidden)).collect()
        };
        let differing = &values(self) ^ &values(other);
        let mut keys: BTreeSet<String> = differing.into_iter().map(|(key, ..)| key).collect();
        // `shown` has the path of the file and not the tokens in it.
        if self.settings.serve.auth_token_file.is_some()
            && self.auth_tokens().ok() != other.auth_tokens().ok()
        {
            keys.insert("serve.auth_token_file".to_owned());
        }
        keys.into_iter().collect()
    }

    /// Shows every key, its value and where that came from, secrets masked.
    pub fn shown(&self) -> Vec<ShownSetting> {
        let mut shown = self.keys_shown();
        if let Some(data) = shown.iter_mut().find(|s| s.key == "data")
            && let Ok(home) = self.home()
        {
            data.value = home.root().to_string_lossy().into();
        }
        shown
    }

    fn keys_shown(&self) -> Vec<ShownSetting> {
        let mut shown = Vec::new();
        for key in section::keys() {
            match self.layers.get(&key.path) {
                Some(node) => drop(cursor::read(node, &key.path, |at| (key.show)(at, &mut shown))),
                None => shown.push(ShownSetting::new(&key.path, serde_json::Value::Null, &Origin::Default)),
            }
        }
        shown
    }

    /// Returns every secret that the configuration holds, for the logs to hide.
    pub fn secrets(&self) -> Vec<String> {
        let hidden = self.keys_shown().into_iter().flat_map(|shown| shown.hidden);
        // What cannot be read cannot be logged.
        let tokens = self.auth_tokens().unwrap_or_default();
        let all = hidden.chain(tokens.iter().map(|token| token.secret.reveal().to_owned()));
        let long = all.filter(|secret| secret.chars().count() >= SECRET_CHARS_MIN);
        long.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the origin of a key's value.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.layers.get(key).map_or(&Origin::Default, |node| &node.origin)
    }

    /// Returns an error about a key's value.
    pub(crate) fn wrong(&self, key: &str, message: impl std::fmt::Display) -> ConfigError {
        ConfigError { problems: vec![Problem::new(self.origin(key), key, message)] }
    }
}
