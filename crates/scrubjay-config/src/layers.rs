//! Finds the layers, checks each, and puts them in order.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use scrubjay_tape::home::Home;

use crate::environment::Environment;
use crate::expand::expand;
use crate::loaded::{Base, Loaded};
use crate::node::{Node, Origin};
use crate::place;
use crate::problem::{ConfigError, Problem};
use crate::project::{self, ProjectFile, Refused};
use crate::section::{self, put_over};
use crate::trust::{self, TrustStore};
use crate::{FileState, SourceFile, Sources};

/// The layers that need no trust, and how to get the others.
pub(crate) struct Loader {
    sources: Sources,
    /// The variables with those of `--env-file`.
    environment: Environment,
    /// Whether the file in the working directory counts.
    with_project: bool,
}

/// What is found out while layers are read.
#[derive(Default)]
struct Findings {
    files: Vec<SourceFile>,
    notices: Vec<String>,
    problems: Vec<Problem>,
}

impl Findings {
    fn note(&mut self, path: &Path, state: FileState) {
        self.files.push(SourceFile { path: path.to_owned(), state });
    }

    /// Says that a project file is not used, and why.
    fn refuse(&mut self, path: &Path, why: String) {
        self.notices.push(format!("{} is not used: {why}", path.display()));
        self.note(path, FileState::Refused { why });
    }

    fn leave_out(&mut self, path: &Path, keys: &[String]) {
        self.notices.push(format!(
            "{} is not trusted, so it is used without {}: look at it, then run `scrubjay trust`",
            path.display(),
            keys.join(", ")
        ));
    }
}

impl Loader {
    pub(crate) fn new(sources: Sources) -> anyhow::Result<Self> {
        let mut environment = sources.environment.clone();
        if let Some(path) = &sources.env_file {
            let text = read_owned(path).and_then(|content| {
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
        let mut found = Findings::default();
        let mut below = section::defaults();
        put_over(&mut below, &self.owner_layer(&self.environment, &mut found)?);
        if self.with_project {
            put_over(&mut below, &self.project_layer(&mut found));
        }
        let above = self.above(&self.environment, &mut found);
        ConfigError::unless_empty(found.problems)?;
        Ok(Loaded::new(below, above, self.base(), found.files, found.notices))
    }

    pub(crate) fn data(self, notices: &mut Vec<String>) -> anyhow::Result<Home> {
        let mut found = Findings::default();
        let mut tree = self.above(&self.environment, &mut found);
        found.notices.clear();
        if names_data(&tree) {
            self.check_owner_file()?;
        } else {
            tree = self.owner_layer(&self.environment, &mut found)?;
            if self.sources.config.is_none()
                && let Ok(file) = project::find(&self.sources.directory)
                && !file.is_agent_progress()
            {
                put_over(&mut tree, &self.project_data(&file, &mut found));
            }
        }
        notices.append(&mut found.notices);
        ConfigError::unless_empty(found.problems)?;
        self.base().home(&tree)
    }

    /// Reads the data directory from a project file, if that may name one.
    fn project_data(&self, file: &ProjectFile, found: &mut Findings) -> Node {
        let mut alone = Node::map(Origin::Default);
        let Some(mut tree) = file.parse(&mut Vec::new()) else { return alone };
        let named = DATA.map(|key| tree.take(key).map(|node| (key, node)));
        let named: Vec<(&str, Node)> = named.into_iter().flatten().collect();
        let Some((first, _)) = named.first() else { return alone };
        if !self.trusts(file).unwrap_or(false) {
            found.leave_out(&file.path, &[(*first).to_owned()]);
            return alone;
        }
        named.into_iter().for_each(|(key, node)| alone.put(key, node));
        layer(alone, &self.environment, &mut found.problems)
    }

    /// Returns the path of the owner's own file, and whether it has to be there.
    fn owner_file(&self) -> Option<(PathBuf, bool)> {
        match &self.sources.config {
            Some(path) => Some((self.sources.directory.join(path), true)),
            None => Some((user_file(&self.sources.environment)?, false)),
        }
    }

    /// Refuses an owner's file that others may change even if nothing in it is needed, so that every command says the
    /// same of it.
    fn check_owner_file(&self) -> anyhow::Result<()> {
        let Some((path, _)) = self.owner_file() else { return Ok(()) };
        match open_owned(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::Other => Err(e).with_context(|| cannot_read(&path)),
            // Whether it is there, and can be read, matters to those who read it.
            _ => Ok(()),
        }
    }

    /// Reads the owner's own file: the one named with `--config`, else the user's.
    fn owner_layer(&self, environment: &Environment, found: &mut Findings) -> anyhow::Result<Node> {
        let empty = Node::map(Origin::Default);
        let Some((path, must_be_there)) = self.owner_file() else { return Ok(empty) };
        let content = match read_owned(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !must_be_there => {
                found.note(&path, FileState::Absent);
                return Ok(empty);
            }
            content => content.with_context(|| cannot_read(&path))?,
        };
        let tree = project::parse_any(&content, &path, &mut found.problems);
        found.note(&path, FileState::Read);
        Ok(tree.map_or(empty, |tree| layer(tree, environment, &mut found.problems)))
    }

    /// Reads the file that lies in the working directory, as far as it is trusted.
    fn project_layer(&self, found: &mut Findings) -> Node {
        let empty = Node::map(Origin::Default);
        let file = match project::find(&self.sources.directory) {
            Ok(file) => file,
            Err((_, Refused::Absent)) => {
                found.note(&self.sources.directory.join(project::FILE_NAME), FileState::Absent);
                return empty;
            }
            Err((path, Refused::Because(why))) => {
                found.refuse(&path, why);
                return empty;
            }
        };
        let trusted = self.trusts(&file).unwrap_or_else(|error| {
            let path = file.path.display();
            found.notices.push(format!("cannot tell whether {path} is trusted: {error:#}"));
            false
        });
        if !trusted {
            return self.strangers_layer(&file, found);
        }
        let tree = file.parse(&mut found.problems);
        found.note(&file.path, FileState::Read);
        tree.map_or(empty, |tree| layer(tree, &self.environment, &mut found.problems))
    }

    /// Reads the harmless keys of a file that nobody trusted. What is wrong with it becomes a notice, so that it keeps
    /// nothing from starting.
    fn strangers_layer(&self, file: &ProjectFile, found: &mut Findings) -> Node {
        let mut problems = Vec::new();
        let (mut read, mut keys) = (Node::map(Origin::Default), Vec::new());
        if let Some(mut tree) = file.parse(&mut problems) {
            problems.extend(trust::problems(&tree, &self.environment));
            keys = trust::withhold(&mut tree);
            read = layer(tree, &self.environment, &mut problems);
        }
        if !keys.is_empty() {
            found.leave_out(&file.path, &keys);
        }
        if let Some(problem) = problems.first() {
            let more = match problems.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let why = format!("it is not trusted, and something in it is wrong: {problem}{more}");
            found.refuse(&file.path, why);
            return Node::map(Origin::Default);
        }
        let state = if keys.is_empty() { FileState::Read } else { FileState::Untrusted { left_out: keys } };
        found.note(&file.path, state);
        read
    }

    /// Reads the layers above a client's options: an environment, and the flags.
    fn above(&self, environment: &Environment, found: &mut Findings) -> Node {
        let mut flags = Node::map(Origin::Default);
        for flag in &self.sources.flags {
            flags.put(flag.key, Node::text(&flag.value, Origin::Flag(flag.name)));
        }
        section::check(&flags, &mut found.problems);
        let mut tree = environment.layer(&mut found.notices, &mut found.problems);
        put_over(&mut tree, &flags);
        tree
    }

    fn trusts(&self, file: &ProjectFile) -> anyhow::Result<bool> {
        self.trust_store()?.trusts(file)
    }

    /// Opens the list of trusted files.
    ///
    /// It lies in the data directory that the owner chose: neither a project file nor an environment file,
    /// which may come from the same stranger, can bring a list of its own.
    pub(crate) fn trust_store(&self) -> anyhow::Result<TrustStore> {
        let mut found = Findings::default();
        let environment = &self.sources.environment;
        let mut tree = self.owner_layer(environment, &mut found)?;
        put_over(&mut tree, &self.above(environment, &mut found));
        // What is wrong with other keys does not matter to the place of the list.
        found.problems.retain(|problem| problem.key.is_empty() || DATA.contains(&problem.key.as_str()));
        ConfigError::unless_empty(found.problems)?;
        Ok(TrustStore::new(self.base().home(&tree)?))
    }

    fn base(&self) -> Base {
        let environment = &self.sources.environment;
        let share = environment.directory("XDG_DATA_HOME").map(Path::to_owned);
        let share = share.or_else(|| Some(environment.directory("HOME")?.join(".local/share")));
        Base {
            directory: self.sources.directory.clone(),
            default_data: share.map(|share| share.join("scrubjay")),
            tell: self.sources.tell,
        }
    }
}

/// The two names of the data directory.
const DATA: [&str; 2] = ["data", "recorder.storage.path"];

fn names_data(tree: &Node) -> bool {
    DATA.iter().any(|key| tree.find(key).is_some())
}

/// Expands the variables in the tree of a file, and checks it.
fn layer(mut tree: Node, environment: &Environment, problems: &mut Vec<Problem>) -> Node {
    expand(&mut tree, environment, problems);
    section::check(&tree, problems);
    tree
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read the configuration {}", path.display())
}

/// Opens a file of ours that no other user may write or replace: one who could would decide what it says.
fn open_owned(path: &Path) -> std::io::Result<File> {
    // Of the open file, so that the file that is checked is the one that is read.
    let file = File::open(path)?;
    let facts = file.metadata()?;
    place::check_owner(&facts)?;
    // Usually we are the only member of our own group, and root of root's.
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

fn read_owned(path: &Path) -> std::io::Result<Vec<u8>> {
    open_owned(path).and_then(project::read)
}

fn user_file(environment: &Environment) -> Option<PathBuf> {
    let config = environment.directory("XDG_CONFIG_HOME").map(Path::to_owned);
    let config = config.or_else(|| Some(environment.directory("HOME")?.join(".config")))?;
    Some(config.join("scrubjay/config.yaml"))
}
