//! The catalog that the router searches: the aggregated list of tools, cached until a backend's list changes.

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
use crate::budget::{Charge, MemoryUse};
use crate::session::Call;

/// How long a catalog is cached in which a backend is missing.
const PARTIAL_FOR: Duration = Duration::from_secs(30);

/// The memory of a catalog, as a multiple of its tools' text, roughly: the definitions, and the index over their words.
const TIMES_ITS_TEXT: usize = 4;

/// One catalog for each era: a backend may describe its tools differently in each.
#[derive(Default)]
pub(super) struct Catalogs {
    cached: [tokio::sync::Mutex<Option<CachedCatalog>>; 2],
    /// Counts the events that may have changed a list.
    changes: AtomicU64,
}

struct CachedCatalog {
    catalog: Arc<Catalog>,
    changes: u64,
    /// When it expires, if a backend is missing in it.
    until: Option<Instant>,
    /// The memory that it takes from the budget.
    _charge: Charge,
}

impl Catalogs {
    /// Returns the cached catalogs.
    pub(super) async fn all(&self) -> Vec<Arc<Catalog>> {
        let mut all = Vec::new();
        for cached in &self.cached {
            all.extend(cached.lock().await.as_ref().map(|cached| cached.catalog.clone()));
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

    /// Returns the catalog; asks all backends for their tools if a list may have changed.
    pub(super) async fn catalog(self: &Arc<Self>, routing: &Routing, call: &Arc<Call>) -> Arc<Catalog> {
        let catalogs = &routing.catalogs;
        // Locked while backends are asked, so that a request that comes meanwhile waits for the same answers.
        let mut cached = catalogs.cached[call.facts.era as usize].lock().await;
        // Read before the backends are asked: a change that is noted meanwhile makes this catalog stale at once.
        let changes = catalogs.changes.load(Ordering::Relaxed);
        if let Some(cached) = &*cached
            && cached.changes == changes
            && cached.until.is_none_or(|until| Instant::now() < until)
        {
            return cached.catalog.clone();
        }
        let (tools, is_whole, bytes) = self.all_tools(call).await;
        let backends: Vec<String> = self
            .backends()
            .iter()
            .filter(|backend| !backend.is_own)
            .map(|backend| backend.id.clone())
            .collect();
        let same = cached.as_ref().filter(|cached| cached.catalog.is_of(&backends, &tools));
        let catalog = match same {
            Some(cached) => cached.catalog.clone(),
            None => {
                tracing::debug!(
                    backends = backends.len(),
                    tools = tools.len(),
                    "the catalog of tools is read again"
                );
                let catalog = Catalog::new(backends, tools);
                routing.teach(&catalog);
                Arc::new(catalog)
            }
        };
        let until = (!is_whole).then(|| Instant::now() + PARTIAL_FOR);
        // The previous one returns its memory to the budget first. If there is none left, nothing is cached, and the
        // next task asks all backends again.
        *cached = None;
        let charge = self.budget.charge(MemoryUse::BackendList, bytes.saturating_mul(TIMES_ITS_TEXT));
        *cached = charge.ok().map(|charge| CachedCatalog {
            catalog: catalog.clone(),
            changes,
            until,
            _charge: charge,
        });
        catalog
    }

    /// Requests the tools of every backend, under their own names. Also returns whether all backends answered, and the
    /// bytes of all definitions.
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
