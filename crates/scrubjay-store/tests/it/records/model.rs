//! Random commands from several sessions, compared with a simple model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use scrubjay_store::ledger::records::listing::{self, RecordFilter};
use scrubjay_store::ledger::records::search::{self, RecordSearch};
use scrubjay_store::ledger::records::{
    self, OnConflict, RecordChanges, RecordError, RecordId, RecordState, Transition, UpdateOutcome,
    activation, collection, saving, sync,
};
use scrubjay_store::ledger::session::Caller;
use scrubjay_store::ledger::{CommitDurability, Ledger, project};

use super::new;
use crate::database::{Database, caller, on_both};

on_both![agrees_with_the_model];

const SESSIONS: usize = 3;
const CASES: u32 = 32;

#[derive(Clone, Debug)]
enum Command {
    Create { parent: Option<usize>, state: RecordState },
    Update { id: usize, title: bool, clash: OnConflict },
    Go { id: usize, to: RecordState, reason: bool, by: Option<usize> },
    Activate { id: usize },
    Sync,
    Save,
    Close,
}

fn commands() -> impl Strategy<Value = Vec<(usize, Command)>> {
    let state = prop::sample::select(vec![
        RecordState::Open,
        RecordState::Later,
        RecordState::Resolved,
        RecordState::Discarded,
    ]);
    let clash = prop::sample::select(vec![OnConflict::Refuse, OnConflict::Merge, OnConflict::Force]);
    // Some ids are of records that do not exist.
    let id = 1..9_usize;
    let command = prop_oneof![
        4 => (prop::option::of(id.clone()), state.clone())
            .prop_map(|(parent, state)| Command::Create { parent, state }),
        5 => (id.clone(), any::<bool>(), clash)
            .prop_map(|(id, title, clash)| Command::Update { id, title, clash }),
        4 => (id.clone(), state, any::<bool>(), prop::option::of(id.clone()))
            .prop_map(|(id, to, reason, by)| Command::Go { id, to, reason, by }),
        6 => id.prop_map(|id| Command::Activate { id }),
        2 => Just(Command::Sync),
        1 => Just(Command::Save),
        1 => Just(Command::Close),
    ];
    prop::collection::vec((0..SESSIONS, command), 1..60)
}

#[derive(Clone, Debug, Default)]
struct Model {
    tick: i64,
    records: Vec<Modelled>,
    sessions: Vec<Session>,
    /// The session, record and tick of each write.
    writes: Vec<(i64, usize, u64)>,
    next_session: u64,
}

#[derive(Clone, Debug)]
struct Modelled {
    parent: Option<usize>,
    state: RecordState,
    /// Title and body of every version.
    versions: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
struct Session {
    /// Counts up with each close, because the next session has another id.
    name: u64,
    begun: bool,
    seen: i64,
    active: BTreeMap<usize, usize>,
    unsaved: BTreeSet<usize>,
}

/// The effect of a command: only what distinguishes it from other effects.
#[derive(Clone, Debug, PartialEq)]
enum Effect {
    Created(usize),
    Updated(&'static str, usize),
    Moved(Vec<usize>),
    Activated { again: bool, changed: bool, others: usize },
    Synced { before: i64, changes: Vec<(usize, i64)>, near: (i64, i64, i64, i64) },
    Saved(Vec<usize>),
    Closed(Vec<usize>, usize),
    Failed(&'static str),
}

impl Model {
    fn new() -> Self {
        let mut model = Self::default();
        for _ in 0..SESSIONS {
            let session = model.fresh();
            model.sessions.push(session);
        }
        model
    }

    fn fresh(&mut self) -> Session {
        self.next_session += 1;
        Session {
            name: self.next_session,
            begun: false,
            seen: 0,
            active: BTreeMap::new(),
            unsaved: BTreeSet::new(),
        }
    }

    fn wrote(&mut self, s: usize, id: Option<usize>) {
        self.tick += 1;
        if self.sessions[s].seen == self.tick - 1 {
            self.sessions[s].seen = self.tick;
        }
        if let Some(id) = id {
            self.writes.push((self.tick, id, self.sessions[s].name));
            let version = self.records[id - 1].versions.len();
            self.sessions[s].active.insert(id, version);
            self.sessions[s].unsaved.insert(id);
        }
    }

    fn open_children(&self, id: usize) -> Vec<usize> {
        let children = self.records.iter().enumerate().filter(|(_, r)| r.parent == Some(id));
        children.filter(|(_, r)| r.state == RecordState::Open).map(|(n, _)| n + 1).collect()
    }

    fn run(&mut self, s: usize, n: usize, command: &Command) -> Effect {
        if !self.sessions[s].begun {
            self.sessions[s].begun = true;
            self.sessions[s].seen = self.tick;
        }
        let there = |id: usize| id <= self.records.len();
        match command {
            Command::Create { parent: Some(id), .. } if !there(*id) => Effect::Failed("not found"),
            Command::Create { parent: Some(id), .. } if !self.sessions[s].active.contains_key(id) => {
                Effect::Failed("parent not activated")
            }
            Command::Create { parent, state } => {
                let versions = vec![(format!("title w{n}"), format!("body w{n}"))];
                self.records.push(Modelled { parent: *parent, state: *state, versions });
                self.wrote(s, Some(self.records.len()));
                Effect::Created(self.records.len())
            }
            Command::Update { id, .. } | Command::Go { id, .. } | Command::Activate { id } if !there(*id) => {
                Effect::Failed("not found")
            }
            Command::Update { id, title, clash } => self.update(s, n, *id, *title, *clash),
            Command::Go { id, to, reason, by } => self.go(s, *id, *to, *reason, *by),
            Command::Activate { id } => {
                let version = self.records[id - 1].versions.len();
                let before = self.sessions[s].active.insert(*id, version);
                let holders = self.sessions.iter().filter(|other| other.active.contains_key(id)).count();
                let changed = before.is_some_and(|before| before != version);
                Effect::Activated { again: before.is_some(), changed, others: holders - 1 }
            }
            Command::Sync => self.sync(s),
            Command::Save => {
                let saved = std::mem::take(&mut self.sessions[s].unsaved);
                self.wrote(s, None);
                Effect::Saved(saved.into_iter().collect())
            }
            Command::Close => {
                let fresh = self.fresh();
                let closed = std::mem::replace(&mut self.sessions[s], fresh);
                Effect::Closed(closed.active.into_keys().collect(), closed.unsaved.len())
            }
        }
    }

    fn update(&mut self, s: usize, n: usize, id: usize, title: bool, clash: OnConflict) -> Effect {
        let Some(held) = self.sessions[s].active.get(&id).copied() else {
            return Effect::Failed("not activated");
        };
        let versions = &self.records[id - 1].versions;
        let (base, theirs) = (&versions[held - 1], versions.last().unwrap());
        let both = if title { base.0 != theirs.0 } else { base.1 != theirs.1 };
        let outcome = match clash {
            _ if held == versions.len() => "written",
            OnConflict::Force => "forced",
            OnConflict::Merge if !both => "merged",
            _ => return Effect::Updated("conflict", versions.len()),
        };
        let mut next = theirs.clone();
        *(if title { &mut next.0 } else { &mut next.1 }) = format!("changed w{n}");
        self.records[id - 1].versions.push(next);
        self.wrote(s, Some(id));
        Effect::Updated(outcome, self.records[id - 1].versions.len())
    }

    fn go(&mut self, s: usize, id: usize, to: RecordState, reason: bool, by: Option<usize>) -> Effect {
        let Some(held) = self.sessions[s].active.get(&id).copied() else {
            return Effect::Failed("not activated");
        };
        let from = self.records[id - 1].state;
        let allowed = match (from, to) {
            (RecordState::Open, to) => to != RecordState::Open,
            (RecordState::Later, to) => to == RecordState::Open || to == RecordState::Discarded,
            (_, to) => to == RecordState::Open,
        };
        if held != self.records[id - 1].versions.len() {
            return Effect::Failed("conflict");
        }
        if !allowed {
            return Effect::Failed("invalid transition");
        }
        let complete = match to {
            RecordState::Open => true,
            RecordState::Later | RecordState::Discarded => reason,
            RecordState::Resolved => by.is_some(),
        };
        if !complete {
            return Effect::Failed("incomplete");
        }
        if to == RecordState::Resolved && by.is_some_and(|by| by > self.records.len()) {
            return Effect::Failed("not found");
        }
        let record = &mut self.records[id - 1];
        record.state = to;
        record.versions.push(record.versions.last().unwrap().clone());
        self.wrote(s, Some(id));
        Effect::Moved(if to == RecordState::Open { vec![] } else { self.open_children(id) })
    }

    fn sync(&mut self, s: usize) -> Effect {
        let session = self.sessions[s].clone();
        let parent = |id: usize| self.records[id - 1].parent;
        let (mut changes, mut near) = (vec![], (0, 0, 0, 0));
        for (tick, id, by) in self.writes.iter().filter(|w| w.0 > session.seen && w.2 != session.name) {
            changes.push((*id, *tick));
            if session.active.contains_key(id) {
                near.0 += 1;
            } else if session.active.keys().any(|active| parent(*active) == Some(*id)) {
                near.1 += 1;
            } else if parent(*id).is_some_and(|parent| session.active.contains_key(&parent)) {
                near.2 += 1;
            } else {
                near.3 += 1;
            }
            assert_ne!(*by, session.name);
        }
        self.sessions[s].seen = self.tick;
        Effect::Synced { before: session.seen, changes, near }
    }
}

fn failed(error: &RecordError) -> &'static str {
    match error {
        RecordError::NotFound(_) => "not found",
        RecordError::NotActivated(_) => "not activated",
        RecordError::ParentNotActivated(_) => "parent not activated",
        RecordError::InvalidTransition { .. } => "invalid transition",
        RecordError::Incomplete { .. } => "incomplete",
        RecordError::Conflict { .. } => "conflict",
        other => panic!("{other}"),
    }
}

fn numbers(ids: &[RecordId]) -> Vec<usize> {
    ids.iter().map(|id| id.0 as usize).collect()
}

async fn real(ledger: &Ledger, caller: &Caller, n: usize, command: &Command) -> Effect {
    let mut write = ledger.write(CommitDurability::Process).await.unwrap();
    let mut scope = records::enter(&mut write, caller, None, None).await.unwrap();
    let write_ref = &mut write;
    let result = match command {
        Command::Create { parent, state } => {
            let text = format!("w{n}");
            let record = records::NewRecord {
                state: *state,
                ..new(parent.map(|p| p as i64), &format!("title {text}"), &format!("body {text}"))
            };
            records::create(write_ref, &mut scope, record).await.map(|r| Effect::Created(r.now.id.0 as usize))
        }
        Command::Update { id, title, clash } => {
            let text = Some(format!("changed w{n}"));
            let changes = if *title {
                RecordChanges { title: text, ..RecordChanges::default() }
            } else {
                RecordChanges { body: text, ..RecordChanges::default() }
            };
            records::update(write_ref, &mut scope, RecordId(*id as i64), changes, *clash).await.map(
                |updated| {
                    let outcome = match updated.outcome {
                        UpdateOutcome::Written => "written",
                        UpdateOutcome::Merged(_) => "merged",
                        UpdateOutcome::Forced { .. } => "forced",
                        UpdateOutcome::Conflict { .. } => "conflict",
                    };
                    Effect::Updated(outcome, updated.record.version as usize)
                },
            )
        }
        Command::Go { id, to, reason, by } => {
            let transition = Transition {
                to: *to,
                reason: reason.then(|| "why".to_owned()),
                resolved_by: by.map(|by| RecordId(by as i64)),
            };
            records::transition(write_ref, &mut scope, RecordId(*id as i64), transition)
                .await
                .map(|moved| Effect::Moved(moved.open_children.iter().map(|r| r.id.0 as usize).collect()))
        }
        Command::Activate { id } => activation::activate(write_ref, &scope, RecordId(*id as i64), false)
            .await
            .map(|activated| Effect::Activated {
                again: activated.before.is_some(),
                changed: activated.before.is_some_and(|before| before.version != activated.now.version),
                others: activated.others.len(),
            }),
        Command::Sync => sync::sync(write_ref, &mut scope).await.map(|synced| Effect::Synced {
            before: synced.before,
            changes: synced.changes.iter().map(|c| (c.id.0 as usize, c.version.tick)).collect(),
            near: {
                let near = synced.nearness;
                (near.active, near.parents, near.children, near.elsewhere)
            },
        }),
        Command::Save => {
            let saved = saving::save(write_ref, &mut scope, None).await.unwrap();
            Ok(Effect::Saved(numbers(&saved.records)))
        }
        Command::Close => {
            let closed = saving::close(write_ref, scope, None).await.unwrap();
            Ok(Effect::Closed(numbers(&closed.deactivated), closed.unsaved_count as usize))
        }
    };
    match result {
        Ok(effect) => {
            write.commit().await.unwrap();
            effect
        }
        Err(error) => {
            // Committed in spite of the error: the session has begun, and a conflict is an event.
            let name = failed(&error);
            write.commit().await.unwrap();
            Effect::Failed(name)
        }
    }
}

async fn compare(ledger: &Ledger, project: &str, model: &Model) {
    let mut read = ledger.read().await.unwrap();
    assert_eq!(project::get(&mut read, project).await.unwrap().unwrap().tick, model.tick);
    let collection = collection::open(&mut read, project).await.unwrap();
    let filter = RecordFilter { limit: 1000, ..RecordFilter::default() };
    let (all, total) = listing::list(&mut read, &collection, &filter).await.unwrap();
    assert_eq!((all.len(), total, collection.totals.records), (model.records.len(), total, total));
    let open = model.records.iter().filter(|r| r.state == RecordState::Open).count() as i64;
    let roots = model.records.iter().filter(|r| r.parent.is_none()).count() as i64;
    assert_eq!((collection.totals.open, collection.totals.roots), (open, roots));
    for (n, (now, modelled)) in all.iter().zip(&model.records).enumerate() {
        let (title, body) = modelled.versions.last().unwrap();
        let children = model.records.iter().filter(|r| r.parent == Some(n + 1)).count() as i64;
        let counted = (now.state, now.version as usize, now.children, now.open_children as usize);
        let expected = (modelled.state, modelled.versions.len(), children, model.open_children(n + 1).len());
        assert_eq!((counted, &now.title), (expected, title), "{}", now.id);
        let whole = records::full(&mut read, &collection, now.id, None).await.unwrap();
        assert_eq!(&whole.content.body, body);
        let word = body.split(' ').next_back().unwrap().to_owned();
        let search = RecordSearch {
            query: word.clone(),
            states: vec![modelled.state],
            limit: 100,
            ..RecordSearch::default()
        };
        let found = search::search(&mut read, &collection, &search).await.unwrap();
        assert!(found.hits.iter().any(|hit| hit.now.id == now.id), "{} is found by {word}", now.id);
    }
}

/// Runs the cases, each in a project of its own.
async fn agrees_with_the_model(database: Database) {
    let ledger = database.open().await;
    let handle = tokio::runtime::Handle::current();
    let tested = tokio::task::spawn_blocking(move || {
        let cases = std::cell::Cell::new(0);
        let config =
            Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
        TestRunner::new(config).run(&commands(), |commands| {
            cases.set(cases.get() + 1);
            let project = format!("case {}", cases.get());
            handle.block_on(async {
                let mut model = Model::new();
                for (n, (s, command)) in commands.iter().enumerate() {
                    let caller = Caller { project: project.clone(), ..caller(&format!("{project}/{s}")) };
                    let expected = model.run(*s, n, command);
                    let effect = real(&ledger, &caller, n, command).await;
                    prop_assert_eq!(effect, expected, "command {}: session {} {:?}", n, s, command);
                }
                compare(&ledger, &project, &model).await;
                Ok(())
            })
        })
    });
    tested.await.unwrap().unwrap();
}
