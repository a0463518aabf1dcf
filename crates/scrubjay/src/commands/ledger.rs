//! What commands that look into the ledger share: opening it.

use scrubjay_store::ledger::Ledger;
use tokio::runtime::Runtime;

use crate::cli::Global;
use crate::config::{self, Loaded};

/// Opens the ledger that the configuration names.
pub(crate) fn open(global: &Global) -> anyhow::Result<(Runtime, Ledger, Loaded)> {
    let loaded = config::load_with(global, Vec::new())?;
    let runtime = super::runtime()?;
    let ledger =
        runtime.block_on(Ledger::open(&loaded.storage()?, loaded.redactor(Some(&loaded.home()?))?))?;
    Ok((runtime, ledger, loaded))
}
