//! The context of a record as an agent sees it, within a token limit.
//!
//! The budget is spent in the order of need: the target, its parent, its open children, its siblings in brief, its other
//! children, its grandchildren. What does not fit is listed as left out.

use schemars::JsonSchema;
use scrubjay_core::tokens::{beginning, estimate_tokens};
use scrubjay_store::ledger::records::bundle::Bundle;
use scrubjay_store::ledger::records::{Record, RecordRef};
use serde::Serialize;

use super::activation::Warning;
use super::view::{RecordView, RefView, section};

/// The tokens of a record besides its texts, estimated: ids, times and the names of the members.
const RECORD_TOKENS: usize = 60;
/// The tokens of a reference besides its texts, estimated.
const REF_TOKENS: usize = 40;
/// How many ids of each kind are listed as left out: the list itself costs tokens.
const NAMED_MAX: usize = 20;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ContextView {
    target: RecordView,
    /// The parent, whole like the target; null for a root.
    #[schemars(with = "serde_json::Value")]
    parent: Option<RecordView>,
    children: ChildrenView,
    grandchildren: Vec<RefView>,
    /// Records beside the target; only with max_tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    siblings: Option<Vec<RefView>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    warnings: Vec<Warning>,
    /// What was left out for lack of room.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    left_out: Vec<LeftOut>,
    /// About how many tokens this answer has.
    tokens: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ChildrenView {
    /// OPEN children, whole.
    open: Vec<RecordView>,
    /// Other children, in brief.
    other: Vec<RefView>,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct LeftOut {
    /// target_body, parent, open_children, siblings, other_children or grandchildren.
    what: &'static str,
    /// How many.
    count: i64,
    /// The first ids; activate or get_record_ref shows the records.
    ids: Vec<String>,
}

fn record_tokens(record: &Record) -> usize {
    let content = &record.content;
    RECORD_TOKENS
        + estimate_tokens(&content.title)
        + estimate_tokens(&content.summary)
        + estimate_tokens(&content.body)
}

fn ref_tokens(now: &RecordRef) -> usize {
    REF_TOKENS + estimate_tokens(&now.title) + estimate_tokens(&now.summary)
}

/// Counts the tokens used, and lists what was left out.
struct TokenRoom {
    max: Option<usize>,
    used: usize,
    left_out: Vec<LeftOut>,
}

impl TokenRoom {
    fn has(&self, tokens: usize) -> bool {
        self.max.is_none_or(|max| self.used + tokens <= max)
    }

    /// Takes as many items as fit, in order. `total` includes items that were not even loaded.
    fn take<T, V>(
        &mut self,
        what: &'static str,
        (all, total): (&[T], i64),
        cost: impl Fn(&T) -> usize,
        now: impl Fn(&T) -> &RecordRef,
        view: impl Fn(&T) -> V,
    ) -> Vec<V> {
        let mut taken = Vec::new();
        for one in all {
            if !self.has(cost(one)) {
                // The items are in order, so a later one does not take the room of an earlier one just for being smaller.
                break;
            }
            self.used += cost(one);
            taken.push(view(one));
        }
        let count = total - taken.len() as i64;
        if count > 0 {
            let ids = all[taken.len()..].iter().take(NAMED_MAX).map(|one| now(one).id.to_string()).collect();
            self.left_out.push(LeftOut { what, count, ids });
        }
        taken
    }
}

/// Makes the view of a record with its context, within `max` tokens if given.
pub(super) fn fit(
    bundle: &Bundle,
    siblings: Option<(Vec<RecordRef>, i64)>,
    max: Option<i64>,
    warnings: Vec<Warning>,
) -> ContextView {
    let max = max.map(|max| usize::try_from(max).unwrap_or(0));
    let mut room = TokenRoom { max, used: 0, left_out: Vec::new() };
    let target = target(&bundle.target, &mut room);
    let whole = |record: &Record| RecordView::of(record);
    // Functions, because the type of a closure that returns a part of its argument cannot be inferred.
    fn now(record: &Record) -> &RecordRef {
        &record.now
    }
    fn same(now: &RecordRef) -> &RecordRef {
        now
    }
    let parents = bundle.parent.as_slice();
    let parent = room.take("parent", (parents, parents.len() as i64), record_tokens, now, whole).pop();
    let counts = &bundle.target.now;
    let open = (bundle.open.as_slice(), counts.open_children);
    let open = room.take("open_children", open, record_tokens, now, whole);
    let siblings = siblings
        .map(|(siblings, total)| room.take("siblings", (&siblings, total), ref_tokens, same, RefView::of));
    let other = (bundle.other.as_slice(), counts.children - counts.open_children);
    let other = room.take("other_children", other, ref_tokens, same, RefView::of);
    let grandchildren = (bundle.grandchildren.as_slice(), bundle.grandchildren_total);
    let grandchildren = room.take("grandchildren", grandchildren, ref_tokens, same, RefView::of);
    let TokenRoom { used, left_out, .. } = room;
    let children = ChildrenView { open, other };
    ContextView { target, parent, children, grandchildren, siblings, warnings, left_out, tokens: used as i64 }
}

/// Makes the view of the target, with as much of its body as fits.
fn target(record: &Record, room: &mut TokenRoom) -> RecordView {
    let mut view = RecordView::of(record);
    // The target is always in the answer; if it alone is too long, its body is cut.
    room.used = record_tokens(record);
    if let Some(max) = room.max.filter(|max| room.used > *max) {
        let body = estimate_tokens(&view.body);
        let kept = body.saturating_sub(room.used - max);
        view.body = beginning(&view.body, kept).to_owned();
        room.used -= body - kept;
        room.left_out.push(LeftOut {
            what: "target_body",
            count: (body - kept) as i64,
            ids: vec![view.id.clone()],
        });
    }
    view
}

impl ContextView {
    /// Writes it as text.
    pub(super) fn text(&self) -> String {
        let mut text: String = self.warnings.iter().map(Warning::line).collect();
        text += &self.target.text();
        if let Some(parent) = &self.parent {
            text += &format!("\nParent\n{}", parent.text());
        }
        for child in &self.children.open {
            text += &format!("\nOpen child\n{}", child.text());
        }
        for (heading, refs) in [
            ("Siblings", self.siblings.as_deref().unwrap_or_default()),
            ("Other children", &self.children.other),
            ("Grandchildren", &self.grandchildren),
        ] {
            text += &section(heading, refs, refs.len() as i64);
        }
        for left in &self.left_out {
            text += &format!("Left out: {} {} {}\n", left.count, left.what, left.ids.join(", "));
        }
        text
    }
}
