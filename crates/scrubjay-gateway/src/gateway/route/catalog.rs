//! The catalog that tasks are routed over: the gateway's own list of tools, kept until some backend's changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scrubjay_router::{Catalog, Tool};
use serde_json::Value;
use tokio::time::Instant;

use super::super::Gateway;
use super::super::aggregate::AggregatedList;
use super::super::names::NamedItem;
use super::Routing;
use crate::backend::list::ListKind;
use crate::budget::{Charge, Use};
use crate::session::Call;

/// How long a catalog is kept in which a backend is missing.
const PARTIAL_FOR: Duration = Duration::from_secs(30);

/// How many times the size of its tools' text a catalog takes in memory, about.
const TIMES_ITS_TEXT: usize = 4;

/// One catalog for each era: a backend may describe its tools to each in other words.
#[derive(Default)]
pub(super) struct Catalogs {
    kept: [tokio::sync::Mutex<Option<CachedCatalog>>; 2],
    /// Counts what may have changed a list.
    changes: AtomicU64,
}

struct CachedCatalog {
    catalog: Arc<Catalog>,
    changes: u64,
    /// Until then, where it is not whole.
    until: Option<Instant>,
    /// The room that it takes.
    _room: Charge,
}

impl Catalogs {
    /// Returns those that are kept.
    pub(super) async fn all(&self) -> Vec<Arc<Catalog>> {
        let mut all = Vec::new();
        for kept in &self.kept {
            all.extend(kept.lock().await.as_ref().map(|kept| kept.catalog.clone()));
        }
        all
    }
}

impl Gateway {
    /// Notes that a list of tools may have changed.
    pub(in super::super) fn tools_changed(&self) {
        if let Some(routing) = self.routing() {
            routing.catalogs.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the catalog, asking all backends where it may have changed.
    pub(super) async fn catalog(self: &Arc<Self>, routing: &Routing, call: &Arc<Call>) -> Arc<Catalog> {
        let catalogs = &routing.catalogs;
        // A request that comes while backends are asked waits for the same answers.
        let mut kept = catalogs.kept[call.facts.era as usize].lock().await;
        let changes = catalogs.changes.load(Ordering::Relaxed);
        if let Some(kept) = &*kept
            && kept.changes == changes
            && kept.until.is_none_or(|until| Instant::now() < until)
        {
            return kept.catalog.clone();
        }
        let (tools, is_whole, bytes) = self.all_tools(call).await;
        let backends: Vec<String> = self
            .backends()
            .iter()
            .filter(|backend| !backend.is_own)
            .map(|backend| backend.id.clone())
            .collect();
        let same = kept.as_ref().filter(|kept| kept.catalog.is_of(&backends, &tools));
        let catalog = match same {
            Some(kept) => kept.catalog.clone(),
            None => {
                tracing::debug!(backends = backends.len(), tools = tools.len(), "the catalog is read anew");
                let catalog = Catalog::new(backends, tools);
                routing.teach(&catalog);
                Arc::new(catalog)
            }
        };
        let until = (!is_whole).then(|| Instant::now() + PARTIAL_FOR);
        // The one before gives its room back first. Where there is none, the next task asks for all tools again.
        *kept = None;
        let room = self.budget.charge(Use::BackendList, bytes.saturating_mul(TIMES_ITS_TEXT));
        *kept = room.ok().map(|room| CachedCatalog { catalog: catalog.clone(), changes, until, _room: room });
        catalog
    }

    /// Asks every backend for its tools, under their own names; tells whether all answered, and how many bytes they have.
    async fn all_tools(self: &Arc<Self>, call: &Arc<Call>) -> (Vec<Tool>, bool, usize) {
        let AggregatedList { named, incomplete, .. } = self.aggregate(call, ListKind::Tools).await;
        let tool = |named: NamedItem| {
            let mut definition: Value = serde_json::from_str(&named.raw).ok()?;
            definition["name"] = named.owned.own.into();
            Some(Tool { backend: named.owned.backend.to_string(), listed_as: named.name, definition })
        };
        let bytes = named.iter().map(|named| named.raw.len()).sum();
        (named.into_iter().filter_map(tool).collect(), incomplete.is_empty(), bytes)
    }
}
