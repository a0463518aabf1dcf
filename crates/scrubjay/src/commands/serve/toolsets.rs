//! Scrubjay's own toolsets as backends of the gateway: each at one end of an in-memory duplex stream.

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use scrubjay_config::{Loaded, Toolset};
use scrubjay_gateway::backend::{Mount, Streams};
use scrubjay_tools::{ServeError, Shared};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};

use super::ServeArgs;

/// The size of the buffer between the gateway and a toolset, in each direction. A writer waits when it is full.
const DUPLEX_BYTES: usize = 256 * 1024;

/// Parses one word of `--toolsets`.
pub(super) fn parse(text: &str) -> anyhow::Result<Option<Toolset>> {
    let known = Toolset::value_variants();
    match text {
        // Empty is what `--toolsets ""` gives, and means the same.
        "none" | "" => Ok(None),
        name => match known.iter().find(|toolset| toolset.name() == name) {
            Some(toolset) => Ok(Some(*toolset)),
            None => {
                let known: Vec<&str> = known.iter().map(|toolset| toolset.name()).collect();
                anyhow::bail!("there is no such toolset: known are {} and none", known.join(", "))
            }
        },
    }
}

/// Returns the toolsets to serve: those of the flag, else those of the configuration.
pub(super) fn chosen(args: &ServeArgs, loaded: &Loaded) -> Vec<Toolset> {
    match &args.toolsets {
        Some(typed) => typed.iter().copied().flatten().collect(),
        None => loaded.toolsets().to_vec(),
    }
}

/// Tells whether any toolset that is served writes to the ledger.
pub(super) fn use_ledger(args: &ServeArgs, loaded: &Loaded) -> bool {
    let writes =
        |toolset: &Toolset| matches!(toolset, Toolset::Recorder | Toolset::Progress | Toolset::Records);
    chosen(args, loaded).iter().any(writes)
}

/// Makes the state that all toolsets share.
pub(super) fn shared(args: &ServeArgs, loaded: &Loaded, workspace: &Path) -> anyhow::Result<Arc<Shared>> {
    Ok(Arc::new(Shared::new(loaded.toolset_setup(workspace, args.project.as_deref())?)))
}

/// Returns a mount for each toolset: the function by which the gateway starts it.
pub(super) fn mounts(args: &ServeArgs, loaded: &Loaded, shared: &Arc<Shared>) -> Vec<(&'static str, Mount)> {
    let mounted = |toolset: Toolset| Some((toolset.name(), mount(toolset, shared.clone())?));
    chosen(args, loaded).into_iter().filter_map(mounted).collect()
}

/// Returns the mount of a toolset; none for the router, which the gateway serves itself.
fn mount(toolset: Toolset, shared: Arc<Shared>) -> Option<Mount> {
    Some(match toolset {
        Toolset::Recorder => {
            Arc::new(move || mounted(|r, w| scrubjay_tools::serve_recorder(shared.clone(), r, w)))
        }
        Toolset::Progress => {
            Arc::new(move || mounted(|r, w| scrubjay_tools::serve_progress(shared.clone(), r, w)))
        }
        Toolset::Records => {
            Arc::new(move || mounted(|r, w| scrubjay_tools::serve_records(shared.clone(), r, w)))
        }
        Toolset::Tapes => Arc::new(move || mounted(|r, w| scrubjay_tools::serve_tapes(shared.clone(), r, w))),
        Toolset::Sample => Arc::new(|| mounted(scrubjay_tools::serve_sample)),
        Toolset::Router => return None,
    })
}

/// Runs a toolset on one end of a duplex stream, and returns the other end.
fn mounted<F>(serve: impl FnOnce(ReadHalf<DuplexStream>, WriteHalf<DuplexStream>) -> F) -> Streams
where
    F: Future<Output = Result<(), ServeError>> + Send + 'static,
{
    let (ours, theirs) = tokio::io::duplex(DUPLEX_BYTES);
    let (reader, writer) = tokio::io::split(theirs);
    let serving = serve(reader, writer);
    tokio::spawn(async move {
        if let Err(e) = serving.await {
            tracing::error!(error = %e, "a toolset ended");
        }
    });
    let (reader, writer) = tokio::io::split(ours);
    (Box::new(reader), Box::new(writer))
}
