//! Loads a configuration: finds the layers, checks each, and puts them in order.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use scrubjay_tape::home::Home;

use crate::environment::Environment;
use crate::layer::{DATA, Layer};
use crate::loaded::{BasePaths, Loaded};
use crate::node::{Node, Origin};
use crate::owned_file::{self, OwnedFileError};
use crate::problem::{ConfigError, Problem};
use crate::project::{self, ProjectFile, Refused};
use crate::trust::TrustStore;
use crate::{FileState, SourceFile, Sources};

/// Loads a configuration, or only the part of it that a command needs. Prints nothing.
pub struct Loader {
    sources: Sources,
    /// The variables of the process and of `--env-file`.
    environment: Environment,
}

/// What was found while layers were read, besides their values.
#[derive(Default)]
struct Findings {
    files: Vec<SourceFile>,
    notices: Vec<String>,
    problems: Vec<Problem>,
    /// Says that an untrusted file names a data directory, if one does.
    data_notice: Option<String>,
}

impl Findings {
    fn note(&mut self, path: &Path, state: FileState) {
        self.files.push(SourceFile { path: path.to_owned(), state });
    }

    /// Reads a file that is used as a whole: expands the variables in it, and checks it.
    fn read(&mut self, path: &Path, content: &[u8], by_keys: bool, environment: &Environment) -> Layer {
        self.note(path, FileState::Read);
        let tree = project::parse(content, path, by_keys, &mut self.problems);
        let (layer, unset, wrong) = tree.map(|tree| tree.layer(environment)).unwrap_or_default();
        self.problems.extend(unset.into_iter().chain(wrong));
        layer
    }

    /// Notes a project file that is not used.
    fn refuse(&mut self, path: &Path, why: String) {
        self.notices.push(format!("{} is not used: {why}", path.display()));
        self.note(path, FileState::Refused { why });
    }

    /// Notifies a person that an untrusted project file is used without some keys.
    fn leave_out(&mut self, path: &Path, keys: &[String]) {
        let without = |keys: &str| {
            let path = path.display();
            format!(
                "{path} is not trusted, so it is used without {keys}: look at it, then run `scrubjay trust`"
            )
        };
        self.notices.push(without(&keys.join(", ")));
        self.data_notice = DATA.into_iter().find(|data| keys.iter().any(|key| key == data)).map(without);
    }
}

impl Loader {
    /// Reads the environment file.
    ///
    /// # Errors
    /// The file cannot be read, or something in it is wrong.
    pub fn new(sources: Sources) -> anyhow::Result<Self> {
        let mut environment = sources.environment.clone();
        if let Some(path) = &sources.env_file {
            let what = || format!("cannot read the environment file {}", path.display());
            let content = owned_file::read_config(path).with_context(what)?;
            let text = String::from_utf8(content).map_err(|_| io::Error::other("it is not UTF-8"));
            let mut problems = Vec::new();
            environment.add_file(&text.with_context(what)?, path, &mut problems);
            ConfigError::unless_empty(problems)?;
        }
        Ok(Self { sources, environment })
    }

    /// Loads the configuration. `Loaded::notices` has what the caller should log.
    ///
    /// # Errors
    /// A file cannot be read, or something in it is wrong: a `ConfigError` with every problem.
    pub fn load(self) -> anyhow::Result<Loaded> {
        // A file that was named takes the place of both.
        let with_project = self.sources.config.is_none();
        self.load_layers(with_project)
    }

    /// Loads the configuration without the file in the working directory.
    ///
    /// # Errors
    /// As `load`.
    pub fn load_own(self) -> anyhow::Result<Loaded> {
        self.load_layers(false)
    }

    fn load_layers(self, with_project: bool) -> anyhow::Result<Loaded> {
        let mut found = Findings::default();
        let mut below = Layer::defaults();
        below.put_over(&self.owner_layer(&self.environment, &mut found)?);
        if with_project {
            below.put_over(&self.project_layer(&mut found));
        }
        let above = self.above(&self.environment, &mut found);
        ConfigError::unless_empty(found.problems)?;
        // If a variable or a flag names the directory, what the file says about it does not matter.
        let data_notice = found.data_notice.filter(|_| data_of(&above).is_none());
        let mut loaded = Loaded::new(below, above, self.base(), found.files, found.notices);
        loaded.data_notice = data_notice;
        Ok(loaded)
    }

    /// Finds the data directory, and nothing else. If a flag or a variable names it, no file is read, but an owner's file
    /// that others may change is refused all the same.
    ///
    /// Problems of other keys in a project file are ignored, so that no file that happens to lie in the working directory
    /// keeps a recorder from starting.
    ///
    /// # Errors
    /// The owner's own file is wrong, or no directory is known.
    pub fn data(self, notices: &mut Vec<String>) -> anyhow::Result<Home> {
        let mut found = Findings::default();
        let mut layers = self.above(&self.environment, &mut found);
        if data_of(&layers).is_some() {
            self.check_owner_file()?;
        } else {
            layers = self.owner_layer(&self.environment, &mut found)?;
            if self.sources.config.is_none() {
                let mut of_project = Findings::default();
                layers.put_over(&self.project_layer(&mut of_project));
                notices.extend(of_project.data_notice);
                found.problems.extend(of_project.problems.into_iter().filter(is_about_data));
            }
        }
        ConfigError::unless_empty(found.problems)?;
        self.base().home(data_of(&layers))
    }

    /// Returns the path of the owner's own file, and whether it has to exist.
    fn owner_file(&self) -> Option<(PathBuf, bool)> {
        match &self.sources.config {
            Some(path) => Some((self.sources.directory.join(path), true)),
            None => {
                let directory = user_directory(&self.sources.environment, "XDG_CONFIG_HOME", ".config")?;
                Some((directory.join("config.yaml"), false))
            }
        }
    }

    /// Refuses an owner's file that others may change, even if nothing in it is needed: every command treats it alike.
    fn check_owner_file(&self) -> anyhow::Result<()> {
        let Some((path, _)) = self.owner_file() else { return Ok(()) };
        match owned_file::open_config(&path) {
            // Whether it exists and can be read matters only to a command that reads it.
            Ok(_) | Err(OwnedFileError::Io(_)) => Ok(()),
            Err(e) => Err(e).with_context(|| cannot_read(&path)),
        }
    }

    /// Reads the owner's own file: the one named with `--config`, else the user's.
    fn owner_layer(&self, environment: &Environment, found: &mut Findings) -> anyhow::Result<Layer> {
        let Some((path, must_be_there)) = self.owner_file() else { return Ok(Layer::default()) };
        let content = match owned_file::read_config(&path) {
            Err(OwnedFileError::Io(e)) if e.kind() == io::ErrorKind::NotFound && !must_be_there => {
                found.note(&path, FileState::Absent);
                return Ok(Layer::default());
            }
            content => content.with_context(|| cannot_read(&path))?,
        };
        Ok(found.read(&path, &content, true, environment))
    }

    /// Reads the file in the working directory: all of it if it is trusted, else only its free keys.
    fn project_layer(&self, found: &mut Findings) -> Layer {
        let file = match project::find(&self.sources.directory) {
            Ok(file) => file,
            Err((_, Refused::Absent)) => {
                found.note(&self.sources.directory.join(project::FILE_NAME), FileState::Absent);
                return Layer::default();
            }
            Err((path, Refused::Because(why))) => {
                found.refuse(&path, why);
                return Layer::default();
            }
        };
        let trusted = self.trust_store().and_then(|store| store.trusts(&file)).unwrap_or_else(|error| {
            let path = file.path.display();
            found.notices.push(format!("cannot tell whether {path} is trusted: {error:#}"));
            false
        });
        if !trusted {
            return self.strangers_layer(&file, found);
        }
        found.read(&file.path, &file.content, false, &self.environment)
    }

    /// Reads the free keys of an untrusted file. Its problems become a notice, so that it keeps nothing from starting.
    fn strangers_layer(&self, file: &ProjectFile, found: &mut Findings) -> Layer {
        let mut problems = Vec::new();
        let (mut layer, mut left_out) = (Layer::default(), Vec::new());
        if let Some(tree) = file.parse(&mut problems) {
            problems.extend(tree.problems(&self.environment));
            left_out = tree.guarded().into_iter().map(|(key, _)| key.to_owned()).collect();
            let unset;
            (layer, unset, _) = tree.layer(&self.environment);
            layer.leave_free();
            // A key that is left out needs no variables.
            problems.extend(unset.into_iter().filter(|problem| layer.get(&problem.key).is_some()));
        }
        if !left_out.is_empty() {
            found.leave_out(&file.path, &left_out);
        }
        if let Some(problem) = problems.first() {
            let more = match problems.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let why = format!("it is not trusted, and something in it is wrong: {problem}{more}");
            found.refuse(&file.path, why);
            return Layer::default();
        }
        let state = if left_out.is_empty() { FileState::Read } else { FileState::Untrusted { left_out } };
        found.note(&file.path, state);
        layer
    }

    /// Reads the layers above a client's options: the environment and the flags.
    fn above(&self, environment: &Environment, found: &mut Findings) -> Layer {
        let mut flags = Layer::default();
        for flag in &self.sources.flags {
            flags.put(flag.key, Node::text(&flag.value, Origin::Flag(flag.name)));
        }
        flags.check(&mut found.problems);
        let mut layers = environment.layer(&mut found.notices, &mut found.problems);
        layers.put_over(&flags);
        layers
    }

    /// Opens the list of trusted files.
    ///
    /// It lies in the data directory that the owner chose: neither a project file nor an environment file,
    /// which may come from the same stranger, can bring a list of its own.
    ///
    /// # Errors
    /// The owner's own file is wrong, or no directory is known.
    pub fn trust_store(&self) -> anyhow::Result<TrustStore> {
        let mut found = Findings::default();
        let environment = &self.sources.environment;
        let mut layers = self.owner_layer(environment, &mut found)?;
        layers.put_over(&self.above(environment, &mut found));
        // Problems of other keys do not change where the list is.
        found.problems.retain(|problem| problem.key.is_empty() || is_about_data(problem));
        ConfigError::unless_empty(found.problems)?;
        Ok(TrustStore::new(self.base().home(data_of(&layers))?))
    }

    fn base(&self) -> BasePaths {
        let Sources { directory, environment, tell, .. } = &self.sources;
        let default_data = user_directory(environment, "XDG_DATA_HOME", ".local/share");
        BasePaths { directory: directory.clone(), default_data, tell: *tell }
    }
}

fn is_about_data(problem: &Problem) -> bool {
    DATA.contains(&problem.key.as_str())
}

/// Returns the data directory that checked layers name.
fn data_of(layers: &Layer) -> Option<PathBuf> {
    layers.read::<PathBuf>(DATA[0])
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read the configuration {}", path.display())
}

/// Returns our own directory in the one that a variable names, which is this one of the home directory if it is not set.
fn user_directory(environment: &Environment, variable: &str, usual: &str) -> Option<PathBuf> {
    let given = environment.directory(variable).map(Path::to_owned);
    Some(given.or_else(|| Some(environment.directory("HOME")?.join(usual)))?.join("scrubjay"))
}
