//! Chooses how much of each entry fits into a token limit: all of it, its summary, or its title. Pure.

use scrubjay_core::tokens::estimate_tokens;
use scrubjay_store::ledger::progress::ProgressEntry;

use super::summary::cut;

/// How much of an entry is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Detail {
    Title,
    Summary,
    Full,
}

impl Detail {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Summary => "summary",
            Self::Full => "full",
        }
    }
}

/// An entry, and how much of it is shown.
pub(super) struct BudgetedEntry {
    pub(super) entry: ProgressEntry,
    pub(super) detail: Detail,
}

impl BudgetedEntry {
    /// Returns the text that is shown besides the title.
    pub(super) fn text(&self) -> Option<String> {
        match self.detail {
            Detail::Title => None,
            Detail::Summary => Some(summary_of(&self.entry)),
            Detail::Full => Some(self.entry.content.clone()),
        }
    }
}

/// Chooses how much of each entry is shown: as many titles as fit, then with the tokens left summaries, then contents.
/// Returns the chosen entries, and how many were left out.
pub(super) fn choose_details(entries: Vec<ProgressEntry>, tokens_max: usize) -> (Vec<BudgetedEntry>, usize) {
    let count = entries.len();
    let mut left = tokens_max;
    let mut chosen = Vec::new();
    for entry in entries {
        // 15 tokens for the id, the date and punctuation.
        let cost = estimate_tokens(&entry.title) + 15;
        // At least one entry, or the answer would be empty.
        if cost > left && !chosen.is_empty() {
            break;
        }
        left = left.saturating_sub(cost);
        chosen.push(BudgetedEntry { entry, detail: Detail::Title });
    }
    // One that does not fit is skipped, not the end: a shorter one after it may fit.
    for one in &mut chosen {
        let cost = estimate_tokens(&summary_of(&one.entry));
        if cost <= left {
            left -= cost;
            one.detail = Detail::Summary;
        }
    }
    for one in chosen.iter_mut().filter(|one| one.detail == Detail::Summary) {
        let more =
            estimate_tokens(&one.entry.content).saturating_sub(estimate_tokens(&summary_of(&one.entry)));
        if more <= left {
            left -= more;
            one.detail = Detail::Full;
        }
    }
    let omitted = count - chosen.len();
    (chosen, omitted)
}

fn summary_of(entry: &ProgressEntry) -> String {
    entry.summary.clone().unwrap_or_else(|| cut(&entry.content, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: usize, content: usize) -> ProgressEntry {
        ProgressEntry {
            id: format!("{n:012}"),
            project_id: "p".to_owned(),
            at_us: 0,
            title: "t".repeat(40),
            content: "c".repeat(content),
            tags: Vec::new(),
            agent_id: None,
            summary: None,
            session_id: String::new(),
            event_id: 0,
        }
    }

    fn check(tokens_max: usize, expected: &str, omitted: usize) {
        let entries = vec![entry(0, 4000), entry(1, 100), entry(2, 4000)];
        let (chosen, left_out) = choose_details(entries, tokens_max);
        let details: Vec<&str> = chosen.iter().map(|one| one.detail.name()).collect();
        assert_eq!((details.join(" ").as_str(), left_out), (expected, omitted), "{tokens_max}");
    }

    #[test]
    fn more_tokens_show_more_of_each_entry() {
        check(10_000, "full full full", 0);
        check(1_600, "full full summary", 0);
        check(500, "summary full summary", 0);
        check(300, "summary full title", 0);
        check(80, "title title title", 0);
        check(60, "title title", 1);
        check(1, "title", 2);
    }
}
