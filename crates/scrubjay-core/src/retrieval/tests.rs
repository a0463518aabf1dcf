//! The evaluation set: which tools must be found, when to abstain, and the results of plain BM25 to compare with.

use proptest::prelude::{ProptestConfig, prop_assert, proptest};
use serde_json::{Value, json};

use super::measure::{GradedAnswer, GradedCase, RetrievalMeasures, measure};
use super::{RetrievalSettings, ToolIndex, ToolText};

const CATALOG: &str = include_str!("../../../../tests/routing/catalog.json");
const DEV: &str = include_str!("../../../../tests/routing/dev.jsonl");
const HELD_OUT: &str = include_str!("../../../../tests/routing/held-out.jsonl");

struct Catalog {
    tools: Vec<ToolText>,
    names: Vec<String>,
}

impl Catalog {
    fn read() -> Self {
        let catalog: Vec<Value> = serde_json::from_str(CATALOG).unwrap();
        let tools: Vec<ToolText> = catalog
            .iter()
            .flat_map(|backend| backend["tools"].as_array().unwrap().iter().map(move |tool| (backend, tool)))
            .map(|(backend, tool)| ToolText::from_definition(backend["backend"].as_str().unwrap(), tool))
            .collect();
        let names = tools.iter().map(ToolText::full_name).collect();
        Self { tools, names }
    }

    fn grade(&self, index: &ToolIndex, cases: &[GradedCase]) -> RetrievalMeasures {
        let answer = |case: &GradedCase| {
            GradedAnswer::new(&index.search(&case.query, 10), case, |tool| &self.names[tool])
        };
        measure(&cases.iter().map(answer).collect::<Vec<_>>())
    }

    /// Teaches the expected tool of each case, as this many conversations would.
    fn teach(
        &self,
        index: &mut ToolIndex,
        cases: &[GradedCase],
        conversations: u64,
        meant: impl Fn(usize) -> usize,
    ) {
        for case in cases {
            for name in &case.expected {
                let tool = self.names.iter().position(|known| known == name).unwrap();
                (0..conversations).for_each(|by| index.learn(&case.query, meant(tool), by));
            }
        }
    }
}

fn cases(lines: &str) -> Vec<GradedCase> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn evaluate(lines: &str, settings: RetrievalSettings) -> RetrievalMeasures {
    let catalog = Catalog::read();
    let cases = cases(lines);
    assert!(cases.iter().flat_map(|case| &case.expected).all(|name| catalog.names.contains(name)));
    catalog.grade(&ToolIndex::new(&catalog.tools, settings), &cases)
}

#[test]
fn learning_does_not_lower_recall() {
    let catalog = Catalog::read();
    let (dev, held_out) = (cases(DEV), cases(HELD_OUT));
    for (taught, asked) in [(&dev, &dev), (&dev, &held_out), (&held_out, &held_out), (&held_out, &dev)] {
        let mut index = ToolIndex::new(&catalog.tools, RetrievalSettings::full());
        let before = catalog.grade(&index, asked);
        for conversations in [1, 2, 5] {
            catalog.teach(&mut index, taught, conversations, |tool| tool);
            let after = catalog.grade(&index, asked);
            assert!(after.recall[2] >= before.recall[2], "{before:?} {after:?}");
        }
        if std::ptr::eq(taught, asked) {
            let after = catalog.grade(&index, asked);
            assert!(
                after.recall[2] > before.recall[2],
                "recall must improve for the taught associations: {before:?} {after:?}"
            );
        }
    }
}

#[test]
fn one_misleading_tape_does_not_change_what_is_acted_on() {
    let catalog = Catalog::read();
    let held_out = cases(HELD_OUT);
    let mut index = ToolIndex::new(&catalog.tools, RetrievalSettings::full());
    let before = catalog.grade(&index, &held_out);
    // One conversation that used a wrong tool for every task.
    let wrong = |tool: usize| (tool + 97) % catalog.tools.len();
    catalog.teach(&mut index, &held_out, 1, wrong);
    let after = catalog.grade(&index, &held_out);
    assert_eq!((after.acts, after.abstains), (before.acts, before.abstains), "the confidence is unchanged");
    assert!(after.recall[2] >= before.recall[2] - 0.02, "{before:?} {after:?}");
}

#[test]
fn recall_is_better_than_with_plain_bm25() {
    for cases in [DEV, HELD_OUT] {
        let (full, plain) =
            (evaluate(cases, RetrievalSettings::full()), evaluate(cases, RetrievalSettings::bm25()));
        assert!(full.recall[2] >= 0.85, "{full:?}");
        for (full, plain) in full.recall.iter().zip(plain.recall) {
            assert!(*full >= plain, "{full} is below {plain}");
        }
        assert!(full.mrr >= plain.mrr && full.ndcg10 >= plain.ndcg10);
    }
}

#[test]
fn it_acts_if_a_tool_serves_and_abstains_if_none_does() {
    for cases in [DEV, HELD_OUT] {
        let full = evaluate(cases, RetrievalSettings::full());
        assert!(full.served > 100 && full.unserved > 30);
        assert!(full.acts >= 0.85 && full.abstains >= 0.9, "{full:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any definitions and any task have an answer with valid numbers.
    #[test]
    fn any_text_can_be_searched(name in "\\PC{0,20}", description in "(?s).{0,200}", task in "(?s).{0,200}") {
        let definition = json!({"name": name, "description": description, "inputSchema": {"title": task}});
        let tools = vec![ToolText::from_definition(&task, &definition); 3];
        let mut index = ToolIndex::new(&tools, RetrievalSettings::full());
        index.learn(&task, 1, 0);
        for task in [&task, &name, &description] {
            let found = index.search(task, 2);
            prop_assert!(found.hits.len() <= 2 && (0.0..=1.0).contains(&found.confidence));
            prop_assert!(found.hits.iter().all(|hit| hit.score.is_finite() && hit.score > 0.0));
            prop_assert!(found.hits.is_sorted_by(|a, b| a.score >= b.score));
        }
    }
}
