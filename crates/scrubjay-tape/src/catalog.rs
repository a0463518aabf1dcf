//! The tapes of a data directory: an overview of each, and which tapes belong to which conversation.
//!
//! People look for the conversation of a client. Tapes of backends, of refused requests and of late messages, and
//! connections on which a client only sent its greeting, are counted with the conversation they belong to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use scrubjay_core::reading::EntryReader;
use scrubjay_core::stats::TapeMetadata;

use crate::clock;
use crate::format::header::{Header, SessionRef, SessionSource, TapeKind};
use crate::format::reader::{Tape, TapeState};
use crate::home::{Home, TapeFile, started_wall_ms};

/// More threads gain nothing: each reads one small footer, and the disk serves few reads at once.
const THREADS_MAX: usize = 8;
/// Starting threads takes longer than reading the footers of fewer tapes.
const THREADED_MIN: usize = 64;

/// What lists show of a tape, read from its header and footer.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Its id and path.
    pub file: TapeFile,
    /// Its header; `None` if it is damaged.
    pub header: Option<Header>,
    /// Whether it is being written, abandoned or sealed.
    pub state: TapeState,
    /// The size of its file.
    pub file_bytes: u64,
    /// When its file was last touched.
    pub file_wall_ns: u64,
    /// Time from its start to its last entry.
    pub duration_ns: u64,
    /// The statistics of its entries.
    pub metadata: TapeMetadata,
    /// What is wrong with it, if anything.
    pub damage: Option<String>,
}

impl Overview {
    /// Reads the overview of a tape. For one that cannot be opened, `damage` says why.
    #[must_use]
    pub fn read(home: &Home, file: &TapeFile) -> Self {
        let mut overview = Self {
            file: file.clone(),
            header: None,
            state: TapeState::Sealed,
            file_bytes: 0,
            file_wall_ns: 0,
            duration_ns: 0,
            metadata: TapeMetadata::default(),
            damage: None,
        };
        match home.open(file) {
            Ok(tape) => overview.fill(&tape).unwrap_or_else(|e| overview.damage = Some(e.to_string())),
            Err(e) => overview.damage = Some(e.to_string()),
        }
        overview
    }

    fn fill(&mut self, tape: &Tape) -> std::io::Result<()> {
        self.state = tape.state();
        self.file_bytes = tape.file_bytes()?;
        // A tape that is being renamed at this moment was touched just now.
        self.file_wall_ns = clock::touched_wall_ns(tape.path()).unwrap_or(u64::MAX);
        self.header = tape.header().cloned();
        if let Some(footer) = tape.footer() {
            self.duration_ns = footer.duration_ns;
            self.metadata = footer.metadata.clone();
            self.damage = footer.damage.first().map(|d| d.what.clone());
            return Ok(());
        }
        // A live tape, one left by a crash, or a damaged one has no statistics of its own.
        let mut reader = EntryReader::default();
        let mut entries = tape.entries()?;
        while let Some((_, entry)) = entries.next()? {
            self.duration_ns = self.duration_ns.max(entry.since_start_ns);
            reader.read(&entry);
        }
        self.damage = entries.damage().first().map(|d| d.what.clone());
        self.metadata = reader.finish();
        Ok(())
    }

    /// Returns when it began, nanoseconds since the Unix epoch: from its header, or from its file's name if that is
    /// damaged.
    #[must_use]
    pub fn started_wall_ns(&self) -> u64 {
        let named = || started_wall_ms(&self.file.path).unwrap_or(0).saturating_mul(1_000_000);
        self.header.as_ref().map_or_else(named, |header| header.started_wall_ns)
    }

    /// Returns when its last entry was recorded, as far as is known.
    #[must_use]
    pub fn ended_wall_ns(&self) -> u64 {
        self.started_wall_ns().saturating_add(self.duration_ns)
    }

    /// Tells whether it certainly ended before a moment: the clock was not behind when it was recorded, and its file is
    /// as old as its times say. The file of an import may be younger, because it was recorded elsewhere.
    #[must_use]
    pub fn is_surely_before(&self, wall_ns: u64) -> bool {
        self.header.as_ref().is_some_and(|header| {
            let file_agrees = header.links.imported.is_some() || self.file_wall_ns < wall_ns;
            header.clock_behind_ns.is_none() && file_agrees
        })
    }

    /// Returns the session of its connection; the last one, if the connection moved to another.
    #[must_use]
    pub fn session(&self) -> SessionRef {
        match &self.metadata.moved_to {
            Some(id) => SessionRef { id: id.clone(), told_by: SessionSource::Agent },
            None => self.header.as_ref().map(|header| header.session.clone()).unwrap_or_default(),
        }
    }

    /// Returns the host's own id of the conversation.
    #[must_use]
    pub fn host_session(&self) -> Option<&str> {
        self.header.as_ref()?.origin.host_session.as_deref()
    }

    /// Tells whether a name is that of its session: the session's id, a prefix of it, or the host's own id.
    #[must_use]
    pub fn is_of_session(&self, name: &str) -> bool {
        !name.is_empty() && (self.session().id.starts_with(name) || self.host_session() == Some(name))
    }

    /// Returns what was recorded: a conversation, a backend, refused requests or late messages.
    #[must_use]
    pub fn kind(&self) -> TapeKind {
        kind(self.header.as_ref(), &self.metadata)
    }

    /// Tells whether it is a conversation that a person would look for. A mere greeting is none, unless it is still
    /// live.
    #[must_use]
    pub fn is_conversation(&self) -> bool {
        self.kind() == TapeKind::Conversation && (!self.metadata.probe || self.state == TapeState::Live)
    }

    /// Returns the key that the tapes of one run of a gateway, or else of one session, share.
    fn group(&self) -> Option<&str> {
        let header = self.header.as_ref()?;
        header.gateway.as_deref().or(Some(&header.session.id)).filter(|group| !group.is_empty())
    }
}

fn kind(header: Option<&Header>, sums: &TapeMetadata) -> TapeKind {
    match header.map_or(TapeKind::Conversation, Header::kind) {
        // Headers of old tapes do not say their kind. Where only backends talk there is no client.
        TapeKind::Conversation if sums.total_messages == 0 && sums.backend_messages > 0 => TapeKind::Backend,
        kind => kind,
    }
}

/// Reads the overviews of many tapes on several threads; returns them in the order of `files`.
#[must_use]
pub fn read_all(home: &Home, files: &[TapeFile]) -> Vec<Overview> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    if threads < 2 || files.len() < THREADED_MIN {
        return files.iter().map(|file| Overview::read(home, file)).collect();
    }
    // Live tapes take much longer than sealed ones, so each thread takes the next tape when it is done with one.
    let next = AtomicUsize::new(0);
    let work = || {
        let mut read = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(at) else { return read };
            read.push((at, Overview::read(home, file)));
        }
    };
    let mut all: Vec<(usize, Overview)> = std::thread::scope(|scope| {
        let beside: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        // A list without the tapes of one thread would look complete, so its panic is passed on.
        all.extend(
            beside.into_iter().flat_map(|thread| thread.join().expect("reading an overview cannot panic")),
        );
        all
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, overview)| overview).collect()
}

/// Groups the conversations of a list by run of the gateway or session; each group is newest first.
fn groups(overviews: &[Overview]) -> HashMap<&str, Vec<usize>> {
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, overview) in overviews.iter().enumerate().filter(|(_, overview)| overview.is_conversation()) {
        if let Some(group) = overview.group() {
            groups.entry(group).or_default().push(at);
        }
    }
    groups
}

/// Returns for each tape that is no conversation the indices of the conversations that share it.
#[must_use]
pub fn shared_by(overviews: &[Overview]) -> Vec<Vec<usize>> {
    let groups = groups(overviews);
    let shared = |overview: &Overview| overview.group().and_then(|group| groups.get(group)).cloned();
    let of = |overview: &Overview| {
        if overview.is_conversation() { Vec::new() } else { shared(overview).unwrap_or_default() }
    };
    overviews.iter().map(of).collect()
}

/// Returns for each tape that is no conversation the index of the conversation it belongs to.
///
/// The list is newest first. A tape belongs to the conversation of the same gateway run, or else of the same session,
/// that began last before it. A tape that began before all of them belongs to the first.
#[must_use]
pub fn owners(overviews: &[Overview]) -> Vec<Option<usize>> {
    let conversations = groups(overviews);
    let owner = |overview: &Overview| {
        let candidates = conversations.get(overview.group()?)?;
        let before = |at: &&usize| overviews[**at].started_wall_ns() <= overview.started_wall_ns();
        candidates.iter().find(before).or(candidates.last()).copied()
    };
    overviews.iter().map(|overview| if overview.is_conversation() { None } else { owner(overview) }).collect()
}

/// Returns the newest conversation of a session, named by its id, a prefix of it, or the host's own id.
pub fn newest_of_session(home: &Home, files: &[TapeFile], name: &str) -> Option<TapeFile> {
    let tapes = read_all(home, files);
    let newest = tapes.into_iter().find(|tape| tape.is_conversation() && tape.is_of_session(name))?;
    Some(newest.file)
}

/// Returns the newest conversation of a list that is newest first. If there is none, returns the newest tape of a
/// client, or else the newest tape.
pub(crate) fn latest(home: &Home, files: Vec<TapeFile>) -> Option<TapeFile> {
    let mut greeting = None;
    for file in &files {
        let Ok(tape) = home.open(file) else { continue };
        if tape.header().is_some_and(|header| header.kind() != TapeKind::Conversation) {
            continue;
        }
        // A live tape counts as a conversation, so it need not be read, which may take long.
        if tape.state() == TapeState::Live || Overview::read(home, file).is_conversation() {
            return Some(file.clone());
        }
        greeting.get_or_insert_with(|| file.clone());
    }
    greeting.or_else(|| files.into_iter().next())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use scrubjay_core::entry::Transport;
    use scrubjay_core::id::TapeId;

    use super::*;
    use crate::format::header::{Compression, Origin, SessionRef};

    /// Makes the overview of a tape that began at a time, in a run of a gateway or only in a session.
    fn tape(started: u64, gateway: Option<&str>, kind: TapeKind) -> Overview {
        let id = TapeId::from_random([u8::try_from(started).unwrap(); 10]);
        let header = Header {
            id,
            name: "n".to_owned(),
            noted_kind: Some(kind),
            gateway: gateway.map(str::to_owned),
            transport: Transport::Stdio,
            started_wall_ns: started,
            clock_behind_ns: None,
            program: None,
            workspace: None,
            origin: Origin::default(),
            session: SessionRef { id: "s".to_owned(), ..SessionRef::default() },
            continues: None,
            part: 1,
            recorder: String::new(),
            compression: Compression::default(),
            links: Default::default(),
        };
        Overview {
            file: TapeFile { id, path: PathBuf::new() },
            header: Some(header),
            state: TapeState::Sealed,
            file_bytes: 1,
            file_wall_ns: started,
            duration_ns: 0,
            metadata: TapeMetadata { total_messages: 1, ..TapeMetadata::default() },
            damage: None,
        }
    }

    #[test]
    fn a_tape_belongs_to_the_conversation_that_began_last_before_it() {
        let (talk, backend) = (TapeKind::Conversation, TapeKind::Backend);
        let mut tapes = vec![
            tape(9, Some("other"), backend),
            tape(8, Some("g"), backend),
            tape(7, Some("g"), talk),
            tape(6, Some("g"), TapeKind::Refused),
            tape(5, Some("g"), talk),
            tape(4, Some("g"), backend),
            tape(3, None, talk),
            tape(2, None, talk),
        ];
        tapes[6].metadata.probe = true;
        let owners = owners(&tapes);
        assert_eq!(owners, [None, Some(2), None, Some(4), None, Some(4), Some(7), None]);
        let shared = shared_by(&tapes);
        assert_eq!((&shared[0], &shared[1], &shared[2]), (&vec![], &vec![2, 4], &vec![]));
    }

    #[test]
    fn a_live_tape_with_only_a_greeting_is_a_conversation() {
        let mut greeted = tape(1, None, TapeKind::Conversation);
        greeted.metadata.probe = true;
        assert!(!greeted.is_conversation());
        greeted.state = TapeState::Live;
        assert!(greeted.is_conversation());
        // An old tape with backend messages only, under any name.
        let mut legs = tape(1, None, TapeKind::Conversation);
        (legs.metadata.total_messages, legs.metadata.backend_messages) = (0, 3);
        assert_eq!(legs.kind(), TapeKind::Backend);
        // A damaged tape must not be hidden.
        let lost = Overview { header: None, damage: Some("lost".to_owned()), ..greeted };
        assert!(lost.is_conversation());
    }
}
