//! Finds the layers, reads them, and puts them in order.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use scrubjay_tape::home::Home;

use super::environment::Environment;
use super::expand::expand;
use super::node::{Node, Origin};
use super::place;
use super::problem::{ConfigError, Problem};
use super::project::{self, ProjectFile, Refused};
use super::raw::{Given, RawConfig};
use super::resolve::{self, Loaded};
use super::setting::Location;
use super::trust::{self, TrustStore};
use super::{FileState, SourceFile, Sources};

/// The layers that are there without asking anyone, and how to get the others.
pub(crate) struct Loader {
    sources: Sources,
    /// The variables with those of `--env-file`.
    environment: Environment,
    /// Whether the file in the working directory counts.
    with_project: bool,
}

impl Loader {
    pub(crate) fn new(sources: Sources) -> anyhow::Result<Self> {
        let mut environment = sources.environment.clone();
        if let Some(path) = &sources.env_file {
            let text = open_owned(path).and_then(project::read).and_then(|content| {
                String::from_utf8(content).map_err(|_| std::io::Error::other("it is not UTF-8"))
            });
            let text =
                text.with_context(|| format!("cannot read the environment file {}", path.display()))?;
            let mut problems = Vec::new();
            environment.add_file(&text, path, &mut problems);
            ConfigError::unless_empty(problems)?;
        }
        let with_project = sources.config.is_none();
        Ok(Self { sources, environment, with_project })
    }

    /// Leaves out the file in the working directory.
    pub(crate) fn without_project(self) -> Self {
        Self { with_project: false, ..self }
    }

    pub(crate) fn load(self) -> anyhow::Result<Loaded> {
        let (mut notices, mut problems) = (Vec::new(), Vec::new());
        let mut files = Vec::new();
        let mut below = RawConfig::defaults().under_layer(self.owner_layer(
            &self.environment,
            &mut files,
            &mut problems,
        )?);
        if self.with_project {
            below = below.under_layer(self.project_layer(&mut files, &mut notices, &mut problems));
        }
        let above = self.above(&self.environment, &mut notices, &mut problems);
        ConfigError::unless_empty(problems)?;
        let base = self.sources.directory.clone();
        Ok(Loaded::new(below, above, &base, self.default_data(), self.sources.tell, files, notices))
    }

    pub(crate) fn data(self, notices: &mut Vec<String>) -> anyhow::Result<Home> {
        let mut problems = Vec::new();
        let above = self.above(&self.environment, &mut Vec::new(), &mut problems);
        let mut found = above.data().cloned();
        if found.is_some() {
            self.check_owner_file()?;
        } else {
            let owner = self.owner_layer(&self.environment, &mut Vec::new(), &mut problems)?;
            found = owner.data().cloned();
            if self.sources.config.is_none()
                && let Ok(file) = project::find(&self.sources.directory)
                && !file.is_agent_progress()
            {
                found = self.project_data(&file, notices, &mut problems).or(found);
            }
        }
        ConfigError::unless_empty(problems)?;
        self.home(found)
    }

    /// Reads the data directory from a project file, if that may name one.
    fn project_data(
        &self,
        file: &ProjectFile,
        notices: &mut Vec<String>,
        problems: &mut Vec<Problem>,
    ) -> Option<Given<Location>> {
        let mut tree = file.parse(&mut Vec::new())?;
        let named = ["data", "recorder.storage.path"].map(|key| tree.take(key).map(|node| (key, node)));
        let named: Vec<(&str, Node)> = named.into_iter().flatten().collect();
        let (first, _) = named.first()?;
        if !self.trusts(file).unwrap_or(false) {
            notices.push(left_out(&file.path, &[(*first).to_owned()]));
            return None;
        }
        let mut alone = Node::map(Origin::Default);
        named.into_iter().for_each(|(key, node)| alone.put(key, node));
        layer(alone, &self.environment, problems).data().cloned()
    }

    /// Returns where the file is that is the owner's own, and whether it has to be there.
    fn owner_file(&self) -> Option<(PathBuf, bool)> {
        match &self.sources.config {
            Some(path) => Some((self.sources.directory.join(path), true)),
            None => Some((user_file(&self.sources.environment)?, false)),
        }
    }

    /// Refuses a file of the owner's that others may change, where nothing in it is needed: a command that does without
    /// it says the same of it as others do.
    fn check_owner_file(&self) -> anyhow::Result<()> {
        let Some((path, _)) = self.owner_file() else { return Ok(()) };
        match open_owned(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::Other => Err(e).with_context(|| cannot_read(&path)),
            // Whether it is there, and can be read, matters to those who read it.
            _ => Ok(()),
        }
    }

    /// Reads the file that is the owner's own: the one named with `--config`, else the user's.
    fn owner_layer(
        &self,
        environment: &Environment,
        files: &mut Vec<SourceFile>,
        problems: &mut Vec<Problem>,
    ) -> anyhow::Result<RawConfig> {
        let Some((path, must_be_there)) = self.owner_file() else { return Ok(RawConfig::default()) };
        let content = match open_owned(&path).and_then(project::read) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !must_be_there => {
                files.push(SourceFile { path, state: FileState::Absent });
                return Ok(RawConfig::default());
            }
            content => content.with_context(|| cannot_read(&path))?,
        };
        let tree = project::parse_any(&content, &path, problems);
        files.push(SourceFile { path, state: FileState::Read });
        Ok(tree.map(|tree| layer(tree, environment, problems)).unwrap_or_default())
    }

    /// Reads the file that lies in the working directory, as far as it is trusted.
    fn project_layer(
        &self,
        files: &mut Vec<SourceFile>,
        notices: &mut Vec<String>,
        problems: &mut Vec<Problem>,
    ) -> RawConfig {
        let file = match project::find(&self.sources.directory) {
            Ok(file) => file,
            Err((_, Refused::Absent)) => {
                let path = self.sources.directory.join(project::FILE_NAME);
                files.push(SourceFile { path, state: FileState::Absent });
                return RawConfig::default();
            }
            Err((path, Refused::Because(why))) => {
                notices.push(format!("{} is not used: {why}", path.display()));
                files.push(SourceFile { path, state: FileState::Refused { why } });
                return RawConfig::default();
            }
        };
        let trusted = self.trusts(&file).unwrap_or_else(|error| {
            notices.push(format!("cannot tell whether {} is trusted: {error:#}", file.path.display()));
            false
        });
        if !trusted {
            return self.strangers_layer(file, files, notices);
        }
        let tree = file.parse(problems);
        files.push(SourceFile { path: file.path, state: FileState::Read });
        tree.map(|tree| layer(tree, &self.environment, problems)).unwrap_or_default()
    }

    /// Reads of a file that nobody trusted what any file may set. What is wrong with it is told, and keeps nothing
    /// from starting.
    fn strangers_layer(
        &self,
        file: ProjectFile,
        files: &mut Vec<SourceFile>,
        notices: &mut Vec<String>,
    ) -> RawConfig {
        let mut problems = Vec::new();
        let tree = file.parse(&mut problems);
        if let Some(tree) = &tree {
            problems.extend(trust::problems(tree, &self.environment));
        }
        let (mut raw, mut keys) = (RawConfig::default(), Vec::new());
        if let Some(mut tree) = tree {
            keys = trust::withhold(&mut tree);
            raw = layer(tree, &self.environment, &mut problems);
        }
        if !keys.is_empty() {
            notices.push(left_out(&file.path, &keys));
        }
        let state = if let Some(problem) = problems.first() {
            raw = RawConfig::default();
            let more = if problems.len() > 1 {
                format!(" (and {} more)", problems.len() - 1)
            } else {
                String::new()
            };
            let why = format!("it is not trusted, and something in it is wrong: {problem}{more}");
            notices.push(format!("{} is not used: {why}", file.path.display()));
            FileState::Refused { why }
        } else if keys.is_empty() {
            FileState::Read
        } else {
            FileState::Untrusted { left_out: keys }
        };
        files.push(SourceFile { path: file.path, state });
        raw
    }

    /// Reads what stands above a client's options: an environment, and the flags.
    fn above(
        &self,
        environment: &Environment,
        notices: &mut Vec<String>,
        problems: &mut Vec<Problem>,
    ) -> RawConfig {
        let mut flags = Node::map(Origin::Default);
        for flag in &self.sources.flags {
            flags.put(flag.key, Node::text(&flag.value, Origin::Flag(flag.name)));
        }
        let flags = RawConfig::read_tree(&flags, problems);
        environment.layer(notices, problems).under_layer(flags)
    }

    fn trusts(&self, file: &ProjectFile) -> anyhow::Result<bool> {
        self.trust_store()?.trusts(file)
    }

    /// Opens the list of trusted files.
    ///
    /// It lies in the data directory that the owner chose: neither a project file nor an environment file,
    /// which may come from the same stranger, can bring a list of its own.
    pub(crate) fn trust_store(&self) -> anyhow::Result<TrustStore> {
        let mut problems = Vec::new();
        let environment = &self.sources.environment;
        let owner = self.owner_layer(environment, &mut Vec::new(), &mut problems)?;
        let above = self.above(environment, &mut Vec::new(), &mut problems);
        // What is wrong with the rest keeps nobody from finding the list.
        let about_data = |key: &str| key.is_empty() || key == "data" || key == "recorder.storage.path";
        problems.retain(|problem| about_data(&problem.key));
        ConfigError::unless_empty(problems)?;
        Ok(TrustStore::new(self.home(owner.under_layer(above).data().cloned())?))
    }

    fn home(&self, data: Option<Given<Location>>) -> anyhow::Result<Home> {
        resolve::home(
            data.as_ref(),
            &self.sources.directory,
            self.default_data().as_deref(),
            self.sources.tell,
        )
    }

    fn default_data(&self) -> Option<PathBuf> {
        let environment = &self.sources.environment;
        let share = environment.directory("XDG_DATA_HOME").map(Path::to_owned);
        let share = share.or_else(|| Some(environment.directory("HOME")?.join(".local/share")))?;
        Some(share.join("scrubjay"))
    }
}

/// Reads a layer from the tree of a file.
fn layer(mut tree: Node, environment: &Environment, problems: &mut Vec<Problem>) -> RawConfig {
    expand(&mut tree, environment, problems);
    RawConfig::read_tree(&tree, problems)
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read the configuration {}", path.display())
}

/// Opens a file of ours that nobody else may write or put another in the place of: whoever can would be its owner in all
/// but name.
fn open_owned(path: &Path) -> std::io::Result<File> {
    // The open file is looked at: what is checked is what is read.
    let file = File::open(path)?;
    let facts = file.metadata()?;
    place::check_owner(&facts)?;
    // Our own group is usually ours alone, and root's is root's.
    let of_strangers = facts.gid() != rustix::process::getegid().as_raw() && facts.gid() != 0;
    let is_open = facts.mode() & 0o002 != 0 || (facts.mode() & 0o020 != 0 && of_strangers);
    if facts.is_file() && is_open {
        let mode = facts.mode() & 0o7777;
        return Err(std::io::Error::other(format!(
            "others may write it (its mode is {mode:04o}): run `chmod go-w` on it"
        )));
    }
    place::check(path, &file)?;
    Ok(file)
}

fn user_file(environment: &Environment) -> Option<PathBuf> {
    let config = environment.directory("XDG_CONFIG_HOME").map(Path::to_owned);
    let config = config.or_else(|| Some(environment.directory("HOME")?.join(".config")))?;
    Some(config.join("scrubjay/config.yaml"))
}

fn left_out(path: &Path, keys: &[String]) -> String {
    format!(
        "{} is not trusted, so it is used without {}: look at it, then run `scrubjay trust`",
        path.display(),
        keys.join(", ")
    )
}
