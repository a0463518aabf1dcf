//! The evaluation set: what must be found, what must be left alone, and what plain BM25 makes of it.

use proptest::prelude::{ProptestConfig, prop_assert, proptest};
use serde_json::{Value, json};

use super::measure::{Answer, Case, Measures, measure};
use super::{Index, Settings, ToolText};

const CATALOG: &str = include_str!("../../../../tests/routing/catalog.json");
const DEV: &str = include_str!("../../../../tests/routing/dev.jsonl");
const HELD_OUT: &str = include_str!("../../../../tests/routing/held-out.jsonl");

fn evaluate(cases: &str, settings: Settings) -> Measures {
    let catalog: Vec<Value> = serde_json::from_str(CATALOG).unwrap();
    let tools: Vec<ToolText> = catalog
        .iter()
        .flat_map(|backend| backend["tools"].as_array().unwrap().iter().map(move |tool| (backend, tool)))
        .map(|(backend, tool)| ToolText::from_definition(backend["backend"].as_str().unwrap(), tool))
        .collect();
    let names: Vec<String> = tools.iter().map(ToolText::full_name).collect();
    let index = Index::new(&tools, settings);
    let answer = |line: &str| {
        let case: Case = serde_json::from_str(line).unwrap();
        assert!(case.expected.iter().all(|name| names.contains(name)), "{line}");
        Answer::new(&index.search(&case.query, 10), &case, |tool| &names[tool])
    };
    measure(&cases.lines().map(answer).collect::<Vec<_>>())
}

#[test]
fn tools_are_found_and_better_than_by_plain_words() {
    for cases in [DEV, HELD_OUT] {
        let (full, plain) = (evaluate(cases, Settings::full()), evaluate(cases, Settings::bm25()));
        assert!(full.recall[2] >= 0.85, "{full:?}");
        for (full, plain) in full.recall.iter().zip(plain.recall) {
            assert!(*full >= plain, "{full} is below {plain}");
        }
        assert!(full.mrr >= plain.mrr && full.ndcg10 >= plain.ndcg10);
    }
}

#[test]
fn it_acts_where_a_tool_serves_and_abstains_where_none_does() {
    for cases in [DEV, HELD_OUT] {
        let full = evaluate(cases, Settings::full());
        assert!(full.served > 100 && full.unserved > 30);
        assert!(full.acts >= 0.85 && full.abstains >= 0.9, "{full:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever tools say and people ask, there is an answer, and its numbers make sense.
    #[test]
    fn any_text_will_do(name in "\\PC{0,20}", description in "(?s).{0,200}", task in "(?s).{0,200}") {
        let definition = json!({"name": name, "description": description, "inputSchema": {"title": task}});
        let tools = vec![ToolText::from_definition(&task, &definition); 3];
        let mut index = Index::new(&tools, Settings::full());
        index.learn(&task, 1);
        for task in [&task, &name, &description] {
            let found = index.search(task, 2);
            prop_assert!(found.hits.len() <= 2 && (0.0..=1.0).contains(&found.confidence));
            prop_assert!(found.hits.iter().all(|hit| hit.score.is_finite() && hit.score > 0.0));
            prop_assert!(found.hits.is_sorted_by(|a, b| a.score >= b.score));
        }
    }
}
