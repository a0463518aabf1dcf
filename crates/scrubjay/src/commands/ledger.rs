//! Opens and closes the ledger for commands that read it.

use scrubjay_config::Loaded;
use scrubjay_store::ledger::{Ledger, session};

use crate::cli::Global;

/// Opens the configured ledger, runs `work` with it, and closes it.
///
/// All of it runs within the runtime, because an open read cannot be dropped outside.
pub(crate) fn within<T>(
    global: &Global,
    work: impl AsyncFnOnce(&Ledger, &Loaded) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (loaded, home) = global.load_with_home()?;
    let (storage, redactor) = (loaded.storage()?, loaded.redactor(Some(&home))?);
    super::runtime()?.block_on(async {
        let ledger = Ledger::open(&storage, redactor).await?;
        // Sessions of processes that are gone would be shown as active.
        session::end_departed(&ledger, |process| home.process(process)).await?;
        let worked = work(&ledger, &loaded).await;
        ledger.close().await;
        worked
    })
}
