//! Writes a story and its chapters as text.

use std::fmt::Write as _;

use scrubjay_core::units::counted;

use super::{Chapter, Story};

impl Chapter {
    /// Returns what happened in order, a line each: for people, and as input of the narrative.
    #[must_use]
    pub fn facts(&self) -> Vec<String> {
        let files = self.iterations.iter().map(|i| {
            let times =
                if i.revisions > 1 { format!(" in {}", counted(i.revisions, "edit")) } else { String::new() };
            (i.first_event, format!("{} {} (+{} -{}){times}", i.what, i.path, i.added, i.removed))
        });
        let quotes = self.decisions.iter().map(|q| (q.event_id, format!("{}: {}", q.label, q.text)));
        let also = self.also.iter().map(|note| (note.event_id, note.text.clone()));
        let mut facts: Vec<(i64, String)> = files.chain(quotes).chain(also).collect();
        facts.sort_by_key(|(event, _)| *event);
        facts.into_iter().map(|(_, fact)| fact).collect()
    }
}

impl Story {
    /// Writes the story as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let title = self.session.title.as_deref().unwrap_or("Untitled session");
        // Writing to a string does not fail.
        let _ = writeln!(out, "# {title}\n");
        if let Some(message) = &self.session.user_message {
            let _ = writeln!(out, "> {}\n", message.replace('\n', "\n> "));
        }
        let n = &self.totals;
        let _ = writeln!(
            out,
            "{}, {}, {}, +{} -{} lines, {:.1} s. Session {} ({}).\n",
            self.steps,
            counted(n.events, "event"),
            counted(n.files, "file"),
            n.added,
            n.removed,
            n.duration_ms as f64 / 1000.0,
            self.session.id,
            self.session.status
        );
        // Without facts, only a step of the plan is worth a heading.
        for chapter in self.chapters.iter().filter(|c| c.step.is_some() || !c.facts().is_empty()) {
            let heading = match (&chapter.step, &chapter.number, chapter.status) {
                (Some(step), Some(number), Some(status)) => format!("{number}. {step} ({})", status.name()),
                _ => "Outside the plan".to_owned(),
            };
            let _ = writeln!(out, "## {heading}\n");
            if let Some(narrative) = &chapter.narrative {
                let _ = writeln!(out, "{narrative}\n");
            }
            for fact in chapter.facts() {
                let _ = writeln!(out, "- {}", fact.replace('\n', "\n  "));
            }
            if chapter.left_out > 0 {
                let _ = writeln!(out, "- … and {} more", chapter.left_out);
            }
            out.push('\n');
        }
        if let Some(closing) = &self.closing_summary {
            let _ = writeln!(out, "## Closing summary\n\n{}\n", closing.text);
        }
        if let Some(cut) = &self.cut {
            let _ = writeln!(out, "({cut})");
        }
        out
    }
}
