//! Checks the ledger when `serve` starts, so that a problem is reported before the first call fails.
//!
//! Backends work and are recorded without it. The greeting's instructions begin with the problem, and calls of the
//! toolsets fail with the cause until the ledger can be opened.

use std::sync::{Arc, Weak};
use std::time::Duration;

use scrubjay_gateway::gateway::Gateway;
use scrubjay_store::ledger::{Ledger, LedgerError};
use scrubjay_tools::Shared;

/// How long the start waits for the inspection of the ledger. A file takes less; a PostgreSQL server may take longer, and
/// then a problem is reported later.
const INSPECT_MAX: Duration = Duration::from_millis(100);
/// How often a ledger that cannot be opened is tried again, so that the notice to later clients is up to date.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Inspects the ledger, then opens it in the background.
pub(super) async fn check(gateway: &Arc<Gateway>, shared: &Arc<Shared>) {
    let inspected = tokio::time::timeout(INSPECT_MAX, Ledger::inspect(&shared.setup().storage)).await;
    if let Ok(Err(error)) = inspected {
        gateway.notice(Some(notice(&error)));
    }
    tokio::spawn(keep_trying(Arc::downgrade(gateway), shared.clone()));
}

async fn keep_trying(gateway: Weak<Gateway>, shared: Arc<Shared>) {
    let mut failed = false;
    loop {
        let opened = shared.ledger().await;
        let Some(gateway) = gateway.upgrade() else { return };
        match opened {
            Ok(_) => {
                if failed {
                    tracing::info!("the ledger can be used now");
                }
                return gateway.notice(None);
            }
            Err(error) => {
                // Logged once, not at every attempt.
                if !failed {
                    tracing::error!(hint = error.hint(), "{error}");
                }
                failed = true;
                gateway.notice(Some(notice(&error)));
            }
        }
        // Not held during the pause, or the gateway would outlive its clients.
        drop(gateway);
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

fn notice(error: &LedgerError) -> String {
    format!(
        "Scrubjay {error}. {} Until then the tools of its toolsets recorder, progress and records fail; all other \
         tools work and are recorded. Tell the user.",
        error.hint()
    )
}
