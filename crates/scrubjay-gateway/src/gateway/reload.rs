//! Applies another configuration while clients are served: backends, rules, the router and the naming of tools.
//!
//! Sessions stay. A backend with the same configuration keeps its connections. One that has changed or was removed is
//! closed, and calls under way on it get an error that says so. Toolsets of this process are not affected.

use std::path::PathBuf;
use std::sync::Arc;

use scrubjay_core::rules::Rules;
use serde_json::Value;

use super::{Gateway, NewTape, RouteWith};
use crate::backend::Backend;
use crate::config::{BackendConfig, Naming};
use crate::session::lock;

/// The error for calls to a removed backend.
const REMOVED: &str = "it was removed from the configuration, which was reloaded";
/// The error for calls that are under way on a backend whose configuration changed.
const CHANGED: &str = "its configuration was changed and reloaded: call again";

/// The configuration from now on.
pub struct Reload {
    /// All backends except toolsets.
    pub backends: Vec<BackendConfig>,
    /// The working directory of new ones.
    pub workspace: Option<PathBuf>,
    /// How their tools are named.
    pub naming: Naming,
    /// The rules, if there are any.
    pub rules: Option<Arc<Rules>>,
    /// How tasks are routed, if they are.
    pub routing: Option<RouteWith>,
}

/// The ids of the backends that a reload affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// New ones.
    pub added: Vec<String>,
    /// Those whose configuration has changed.
    pub changed: Vec<String>,
    /// Those that the configuration does not have any more.
    pub removed: Vec<String>,
}

impl Gateway {
    /// Applies another configuration from now on.
    pub fn reload(&self, to: Reload) -> Reloaded {
        // First, so that no new backend starts without them.
        self.rules.put(to.rules);
        let naming = std::mem::replace(&mut *lock(&self.naming), to.naming);
        let reloaded = self.replace_backends(&to.backends, to.workspace.as_ref());
        self.name_idle_rules();
        let others = [reloaded.changed.clone(), reloaded.removed.clone()].concat();
        // Other rules may hide what was listed before.
        for backend in self.backends().iter() {
            backend.known.forget_offers();
            backend.open_connections().iter().for_each(|connection| connection.forget_lists());
        }
        self.forget_all_lists(&others, naming != to.naming);
        self.route_with(to.routing);
        self.tools_changed();
        self.announce_all_lists();
        reloaded
    }

    /// Puts a note on the tape of every session.
    pub fn note_everywhere(&self, facts: &Value) {
        self.all_sessions().iter().for_each(|session| session.record_note(facts));
    }

    /// Replaces the backends, in the order of the configuration, toolsets last.
    fn replace_backends(&self, to: &[BackendConfig], workspace: Option<&PathBuf>) -> Reloaded {
        let mut reloaded = Reloaded::default();
        let mut retired: Vec<(Arc<Backend>, &str)> = Vec::new();
        let mut backends = lock(&self.backends);
        let mut all: Vec<Arc<Backend>> = Vec::with_capacity(to.len());
        for config in to {
            let before = backends.iter().find(|backend| backend.id == config.id);
            match before {
                // A toolset keeps its id, as it does at the start.
                Some(own) if own.is_own => continue,
                Some(same) if same.has_config(config) => {
                    all.push(same.clone());
                    continue;
                }
                Some(changed) => {
                    reloaded.changed.push(config.id.clone());
                    retired.push((changed.clone(), CHANGED));
                }
                None => reloaded.added.push(config.id.clone()),
            }
            all.push(self.new_backend(config, workspace.cloned()));
        }
        for backend in backends.iter() {
            if backend.is_own {
                all.push(backend.clone());
            } else if !to.iter().any(|config| config.id == backend.id) {
                reloaded.removed.push(backend.id.clone());
                retired.push((backend.clone(), REMOVED));
            }
        }
        *backends = all.into();
        // Replaced before the old ones are closed: a call that fails now and is repeated finds the new ones.
        drop(backends);
        for (backend, why) in retired {
            backend.retire(why);
            backend.finish_recording(self.new_tape(NewTape::late()), why);
        }
        reloaded
    }
}
