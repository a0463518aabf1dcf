//! Finds out which conversation a connection belongs to.
//!
//! A host starts one process for each server. If the host names its conversation, or passes on a trace, that decides.
//! Otherwise all we know is which process started us, and in which workspace. Connections of one host process belong
//! together, except that the same server started again while the first still runs belongs to a second conversation.
//! Each open connection holds a claim file in `<data>/conversations/<host process>/` with the id of its session. Once
//! all claims of a conversation are gone, the next connection begins another.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock};
use scrubjay_core::id::TapeId;

use crate::claim::{Claim, ClaimHolder};
use crate::format::header::{Origin, SessionRef, SessionSource};
use crate::format::writer::is_at;
use crate::home::{Home, create_private_dir};

/// How many conversations of one host process are told apart: no host runs that many at once. Further ones share the
/// last.
const CONVERSATIONS_MAX: u32 = 1000;
/// The lock file that lets one process at a time look for its conversation.
const TURN: &str = "turn";

/// The conversation of a process that a host started. It is found out when it is first needed, so that a process that
/// receives no message leaves nothing behind.
#[derive(Debug)]
pub struct Conversation {
    home: Home,
    origin: Origin,
    workspace: Option<String>,
    server: String,
    joined: OnceLock<Membership>,
}

/// A connection's membership in a conversation, held for as long as this process lives.
#[derive(Debug)]
struct Membership {
    /// The session; none if nothing identifies it.
    session: Option<SessionRef>,
    _claim: Option<Claim>,
}

impl Conversation {
    /// Describes a process that a host started to run `server`.
    #[must_use]
    pub fn new(home: Home, origin: Origin, workspace: Option<String>, server: String) -> Self {
        Self { home, origin, workspace, server, joined: OnceLock::new() }
    }

    /// Returns the session; none if nothing identifies it.
    #[must_use]
    pub fn session(&self) -> Option<SessionRef> {
        self.joined.get_or_init(|| self.join()).session.clone()
    }

    /// If the data directory cannot be written, the host process alone identifies the session.
    fn join(&self) -> Membership {
        let session = SessionRef::of_host(&self.origin, self.workspace.as_deref());
        let process = session.as_ref().filter(|session| session.told_by == SessionSource::HostProcess);
        match process.map(|host| join_process(&self.home.conversations(), &host.id, &self.server)) {
            Some(Ok((id, claim))) => Membership {
                session: Some(SessionRef { id, told_by: SessionSource::HostProcess }),
                _claim: claim,
            },
            None | Some(Err(_)) => Membership { session, _claim: None },
        }
    }
}

/// Finds the conversation of a host process that does not have this server open yet.
fn join_process(conversations: &Path, host: &str, server: &str) -> io::Result<(String, Option<Claim>)> {
    let place = conversations.join(host);
    create_private_dir(conversations)?;
    let _turn = take_turn(&place)?;
    // Hashed, because a user chooses the name and it may not be a valid file name.
    let server = &blake3::hash(server.as_bytes()).to_hex()[..16];
    let mut open: BTreeMap<u32, String> = BTreeMap::new();
    for entry in std::fs::read_dir(&place)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let Some(number) = name.split_once('-').and_then(|(number, _)| number.parse().ok()) else { continue };
        match Claim::holder(&place, &name) {
            ClaimHolder::Alive => {
                open.insert(number, std::fs::read_to_string(place.join(&name))?);
            }
            // Left by a process that was killed.
            ClaimHolder::Gone => std::fs::remove_file(place.join(&name))?,
            // Released since the directory was listed.
            ClaimHolder::Unknown => {}
        }
    }
    for number in 0..CONVERSATIONS_MAX {
        let id = open.get(&number).filter(|id| !id.is_empty()).cloned().unwrap_or_else(random_id);
        if let Some(claim) = Claim::take(&place, &format!("{number}-{server}"), &id)? {
            return Ok((id, Some(claim)));
        }
    }
    Ok((open.pop_last().map_or_else(random_id, |(_, id)| id), None))
}

/// Waits for the lock; dropping the returned file frees it.
fn take_turn(place: &Path) -> io::Result<File> {
    let path = place.join(TURN);
    loop {
        create_private_dir(place)?;
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        match opened {
            // `sweep` may remove the directory between the two steps, and the file while this waits for its lock.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(file) => {
                flock(&file, FlockOperation::LockExclusive)?;
                if is_at(&file, &path)? {
                    return Ok(file);
                }
            }
        }
    }
}

/// Removes the directories of host processes that have no open connection left.
///
/// # Errors
/// A directory cannot be read.
pub fn sweep(home: &Home) -> io::Result<()> {
    let hosts = match std::fs::read_dir(home.conversations()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        hosts => hosts?,
    };
    for host in hosts {
        let place = host?.path();
        let _turn = take_turn(&place)?;
        let names = std::fs::read_dir(&place)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: Vec<String> = names.filter(|name| name != TURN).collect();
        if names.iter().all(|name| Claim::holder(&place, name) == ClaimHolder::Gone) {
            names.iter().try_for_each(|name| std::fs::remove_file(place.join(name)))?;
            std::fs::remove_file(place.join(TURN))?;
            // A process that waits for the lock may have recreated the file; then the directory stays.
            let _ = std::fs::remove_dir(&place);
        }
    }
    Ok(())
}

/// Makes a random session id.
pub fn random_id() -> String {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the system has a source of randomness");
    TapeId::from_random(random).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(pid: u32, host_session: Option<&str>) -> Origin {
        Origin {
            host_session: host_session.map(str::to_owned),
            host_pid: Some(pid),
            host_started: Some(7),
            ..Origin::default()
        }
    }

    fn join(home: &Home, origin: Origin, workspace: &str, server: &str) -> Conversation {
        Conversation::new(home.clone(), origin, Some(workspace.to_owned()), server.to_owned())
    }

    fn id(conversation: &Conversation) -> String {
        conversation.session().unwrap().id
    }

    #[test]
    fn servers_of_one_host_process_are_one_conversation_and_the_same_server_twice_is_two() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path().join("data"));
        let open = |server| join(&home, origin(1, None), "/w", server);
        let (files, git) = (open("files"), open("git"));
        assert_eq!(id(&files), id(&git));
        let (files_2, git_2) = (open("files"), open("git"));
        assert_eq!(id(&files_2), id(&git_2));
        assert_ne!(id(&files), id(&files_2));
        assert_ne!(id(&files), id(&join(&home, origin(1, None), "/other", "web")));
        assert_ne!(id(&files), id(&join(&home, origin(2, None), "/w", "web")));

        // A server that starts again while its conversation is open joins that conversation.
        let first = id(&files);
        drop(files);
        assert_eq!(id(&open("files")), first);
        // After all have ended, the next one begins another conversation.
        drop((git, files_2, git_2));
        assert_ne!(id(&open("files")), first);
        sweep(&home).unwrap();
        assert_eq!(std::fs::read_dir(home.conversations()).unwrap().count(), 0);
    }

    #[test]
    fn the_session_that_the_host_names_wins() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path().to_owned());
        let open = |pid, name| join(&home, origin(pid, Some(name)), "/w", "files");
        let (one, two) = (open(1, "a"), open(2, "a"));
        assert_eq!(id(&one), id(&two));
        assert_ne!(id(&one), id(&open(1, "b")));
    }

    #[test]
    fn an_unused_conversation_leaves_no_files() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path().join("data"));
        drop(join(&home, origin(1, None), "/w", "files"));
        assert!(!home.root().exists());
    }
}
