//! Records a change that an agent says it made by other means.

use scrubjay_core::diff;
use serde_json::json;

use super::{AppliedChange, ChangeReport, FileError, Files, ReportedAction, RevisionDraft};
use crate::ledger::CommitDurability;
use crate::ledger::blob::{self, hex};
use crate::ledger::event::{self, NewEvent};
use crate::ledger::revision::{self, RevisionSource, RevisionState};
use crate::ledger::session::{self, Caller};

impl Files {
    pub(super) async fn record_report(
        &self,
        caller: &Caller,
        report: ChangeReport,
    ) -> Result<AppliedChange, FileError> {
        let (kind, name) = (report.action.event_kind(), report.action.name());
        let path = match self.workspace.locate(&report.path) {
            Ok(path) => path,
            Err(refusal) => return Err(self.refuse(caller, report.attempt(), refusal.into()).await?),
        };
        if let Some(refused) = self.secret_in(&path) {
            return Err(self.refuse(caller, report.attempt(), refused).await?);
        }
        // The same lock as for a change of ours, so that a pending change is settled before the report follows it.
        let _lock = self.lock_path(path.as_str()).await?;
        self.settle_path(caller, path.as_str()).await?;
        // A file that cannot be read now is no reason to lose the report.
        let found = self.read_current(&path).await.ok().flatten();
        let mut write = self.ledger.write(CommitDurability::Power).await?;
        let session = session::current(&mut write, caller, report.session.as_deref()).await?;
        // Read after settling, which may have added a revision: the report's content before is the last state by now.
        let known = revision::latest(&mut write, &self.root(), path.as_str()).await?.and_then(|r| r.after);
        let known = blob::get_optional(&mut write, known.as_ref()).await?;
        let on_disk = found.as_ref().map(|f| f.bytes.clone());
        let (before, after) = match report.action {
            ReportedAction::Create(content) => (None, content.map(String::into_bytes).or(on_disk)),
            ReportedAction::Edit(old, new) => {
                (old.map(String::into_bytes).or(known), new.map(String::into_bytes).or(on_disk))
            }
            ReportedAction::Delete => (known, None),
        };
        let details = json!({
            "path": path.as_str(), "action": name, "reported": true,
            "before": before.as_deref().map(|b| hex(&blob::hash(b))),
            "after": after.as_deref().map(|a| hex(&blob::hash(a))),
        });
        let event = NewEvent::new(kind, format!("{name} {} (reported)", path.as_str()));
        let event_id =
            event::append(&mut write, &session, caller, event.about(path.as_str()).with(details)).await?;
        let mode = found.map(|f| f.mode);
        let draft = RevisionDraft {
            path: path.as_str(),
            source: RevisionSource::Reported,
            before: before.as_deref(),
            after: after.as_deref(),
            counted: diff::count(before.as_deref().unwrap_or_default(), after.as_deref().unwrap_or_default()),
            mode,
        };
        let revision = self.add_revision(&mut write, event_id, RevisionState::Done, draft).await?;
        write.commit().await?;
        let (hash, size) = (revision.after, revision.size);
        let (session_id, path) = (session.id, path.as_str().to_owned());
        Ok(AppliedChange {
            session_id,
            event_id,
            revision: Some(revision),
            path,
            hash,
            size,
            observed: false,
        })
    }
}
