//! What the router learns from calls that succeeded: the words of a task, for the tool that was called.

use std::sync::Arc;

use scrubjay_router::{Lesson, PlannedCall, RouteTask};

use super::super::Gateway;
use crate::session::{Call, lock};

impl Gateway {
    /// Learns in the background: no answer waits for this.
    pub fn learn(self: &Arc<Self>, lessons: Vec<Lesson>) {
        let Some(known) = self.routing().and_then(|routing| routing.lessons.clone()) else { return };
        let news = {
            let mut known = lock(&known);
            lessons.into_iter().map(|lesson| known.add(lesson)).filter(|is_new| *is_new).count()
        };
        if news > 0 {
            let gateway = self.clone();
            // Waits for a catalog that is being made. It may have this lesson already; a second time changes nothing.
            tokio::spawn(async move { gateway.teach_catalogs().await });
        }
    }

    async fn teach_catalogs(&self) {
        let Some(routing) = self.routing() else { return };
        for catalog in routing.catalogs.all().await {
            routing.teach(&catalog);
        }
    }

    /// Learns from a call that succeeded.
    pub(super) fn learn_from(self: &Arc<Self>, call: &Arc<Call>, task: &RouteTask, plan: &PlannedCall) {
        let Some(tool) = plan.tool() else { return };
        let session = call.session.recorded_as().map(|session| session.id);
        let conversation = session.as_ref().unwrap_or(&call.session.id);
        self.learn(vec![Lesson::new(&task.query, &plan.backend_id, tool, conversation)]);
    }
}
