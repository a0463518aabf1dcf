//! Checks whether the ledger and the index can be opened; neither is created.

use scrubjay_core::units;
use scrubjay_store::index::Index;
use scrubjay_store::ledger::{Ledger, LedgerError, Storage};

use super::{Findings, Installation};
use crate::commands::runtime;

/// Opens the ledger, if there is one.
pub(super) fn check_ledger(installation: &Installation, findings: &mut Findings) {
    let Ok(loaded) = &installation.loaded else {
        return findings.note("not checked", "correct the configuration first");
    };
    let opened = || -> anyhow::Result<Option<String>> {
        let storage = loaded.storage()?;
        // Opening would create the file, and this command changes nothing.
        if let Storage::File(path) = &storage
            && !path.exists()
        {
            return Ok(None);
        }
        let redactor = loaded.redactor(Some(&installation.home))?;
        runtime()?.block_on(async {
            let ledger = Ledger::open(&storage, redactor).await?;
            ledger.close().await;
            anyhow::Ok(())
        })?;
        Ok(Some(match storage {
            Storage::File(path) => format!("{} can be opened", path.display()),
            Storage::Postgres(_) => "the PostgreSQL database can be opened".to_owned(),
        }))
    };
    match opened() {
        Ok(Some(what)) => findings.ok(what),
        Ok(None) => findings.ok("does not exist yet: the first call of a toolset creates it"),
        Err(error) => {
            let hint = error
                .downcast_ref::<LedgerError>()
                .map_or("see `storage` in docs/CONFIG.md", LedgerError::hint);
            findings.wrong(format!("{error:#}"), hint.to_owned());
        }
    }
}

/// Opens the index, if there is one.
pub(super) fn check_index(installation: &Installation, findings: &mut Findings) {
    let Ok(loaded) = &installation.loaded else {
        return findings.note("not checked", "correct the configuration first");
    };
    let opened = || -> anyhow::Result<Option<u64>> {
        let storage = loaded.storage()?;
        // Here, too, opening would create the file.
        if matches!(storage, Storage::File(_)) && !installation.home.index().exists() {
            return Ok(None);
        }
        runtime()?.block_on(async {
            let index = Index::open(&installation.home, &storage).await?;
            index.close().await;
            Ok(Some(index.file_bytes().unwrap_or(0)))
        })
    };
    match opened() {
        Ok(Some(bytes)) => findings.ok(format!("can be opened, {}", units::size(bytes))),
        Ok(None) => findings.ok("does not exist yet: the first search creates it"),
        Err(error) => findings.wrong(
            format!("{error:#}"),
            "rebuild it from the tapes with `scrubjay index rebuild`; it holds nothing else",
        ),
    }
}
