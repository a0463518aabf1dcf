//! Checks the ledger when `serve` starts, so that a problem is reported before the first call fails.
//!
//! Backends work and are recorded without it. The greeting's instructions begin with the problem, and calls of the
//! toolsets fail with the cause until the ledger can be opened.

use std::sync::{Arc, Weak};
use std::time::Duration;

use scrubjay_gateway::gateway::Gateway;
use scrubjay_store::ledger::{Ledger, LedgerError};
use scrubjay_tools::Shared;

/// A file is looked at in less; nobody who starts us waits longer for it.
const LOOK_MAX: Duration = Duration::from_millis(100);
/// How often a ledger that cannot be used is tried again, for the sake of clients that come later.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Looks at the ledger, and opens it beside everything else.
pub(super) async fn check(gateway: &Arc<Gateway>, shared: &Arc<Shared>) {
    let looked = tokio::time::timeout(LOOK_MAX, Ledger::inspect(&shared.setup().storage)).await;
    if let Ok(Err(error)) = looked {
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
                if !failed {
                    tracing::error!(hint = error.hint(), "{error}");
                }
                failed = true;
                gateway.notice(Some(notice(&error)));
            }
        }
        drop(gateway);
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

fn notice(error: &LedgerError) -> String {
    format!(
        "Scrubjay {error}. {} Until then the tools of its toolsets recorder, progress and records fail; all other \
         tools work and are recorded. Tell the user.",
        error.hint()
    )
}
