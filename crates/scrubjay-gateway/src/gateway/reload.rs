//! Takes another configuration while clients are served: backends, rules, the router and how tools are named.
//!
//! Sessions stay. A backend that is described as before keeps its connections; one that is described otherwise, or no
//! more, is closed, and calls under way on it are told so. Toolsets of this process are none of this.

use std::path::PathBuf;
use std::sync::Arc;

use scrubjay_core::rules::Rules;
use serde_json::Value;

use super::{Gateway, RouteWith};
use crate::backend::Backend;
use crate::config::{BackendConfig, Naming};
use crate::session::lock;

/// What calls to a removed backend are told.
const REMOVED: &str = "it was removed from the configuration, which was reloaded";
/// What calls under way on a changed backend are told.
const CHANGED: &str = "its configuration was changed and reloaded: call again";

/// What is to be in force from now on.
pub struct Reload {
    /// All backends that are no toolsets.
    pub backends: Vec<BackendConfig>,
    /// Where new ones start.
    pub workspace: Option<PathBuf>,
    /// How their tools are named.
    pub naming: Naming,
    /// The rules, where there are any.
    pub rules: Option<Arc<Rules>>,
    /// What routes tasks, where that is wanted.
    pub routing: Option<RouteWith>,
}

/// What became of the backends, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// New ones.
    pub added: Vec<String>,
    /// Those that are described otherwise now.
    pub changed: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
}

impl Gateway {
    /// Goes by another configuration from now on.
    pub fn reload(&self, to: Reload) -> Reloaded {
        // Before any new backend can start.
        self.rules.put(to.rules);
        *lock(&self.naming) = to.naming;
        let (reloaded, touched) = self.replace_backends(&to.backends, to.workspace.as_ref());
        self.forget_all_routes(&touched);
        self.route_with(to.routing);
        self.tools_changed();
        self.tell_lists_changed();
        reloaded
    }

    /// Puts a note on the tape of every session.
    pub fn note_everywhere(&self, facts: &Value) {
        self.all_sessions().iter().for_each(|session| session.record_note(facts));
    }

    /// Replaces the backends, and returns the places where there are others now. A place is never given to another id:
    /// whoever is at work with the old ones must not find a stranger there.
    fn replace_backends(&self, to: &[BackendConfig], workspace: Option<&PathBuf>) -> (Reloaded, Vec<usize>) {
        let (mut reloaded, mut touched, mut retired) = (Reloaded::default(), Vec::new(), Vec::new());
        let mut backends = lock(&self.backends);
        let mut all: Vec<Arc<Backend>> = backends.to_vec();
        let new = |config: &BackendConfig| self.new_backend(config, workspace.cloned());
        for config in to {
            let Some(place) = all.iter().position(|backend| backend.id == config.id) else {
                reloaded.added.push(config.id.clone());
                all.push(new(config));
                continue;
            };
            let backend = &mut all[place];
            if backend.is_own || (backend.is_as(config) && !backend.is_retired()) {
                continue;
            }
            let list = if backend.is_retired() { &mut reloaded.added } else { &mut reloaded.changed };
            list.push(config.id.clone());
            touched.push(place);
            retired.push((std::mem::replace(backend, new(config)), CHANGED));
        }
        for (place, backend) in all.iter().enumerate() {
            let is_wanted = backend.is_own || to.iter().any(|config| config.id == backend.id);
            if !is_wanted && !backend.is_retired() {
                reloaded.removed.push(backend.id.clone());
                touched.push(place);
                retired.push((backend.clone(), REMOVED));
            }
        }
        *backends = all.into();
        drop(backends);
        for (backend, why) in retired {
            backend.retire(why);
            backend.finish_recording((self.new_recording)("after the end", None), why);
        }
        (reloaded, touched)
    }
}
