//! Reads a file of cases: one JSON object in each line.

use std::path::Path;

use anyhow::{Context, ensure};
use scrubjay_core::retrieval::measure::GradedCase;

use super::catalog::{Catalog, read_text};

/// Reads `{"query": …, "expected": ["backend/tool", …]}` lines.
pub(super) fn read(path: &Path, catalog: &Catalog) -> anyhow::Result<Vec<GradedCase>> {
    parse(&read_text(path)?, catalog).with_context(|| format!("the cases {}", path.display()))
}

fn parse(text: &str, catalog: &Catalog) -> anyhow::Result<Vec<GradedCase>> {
    let mut cases = Vec::new();
    for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        cases.push(case(line, catalog).with_context(|| format!("line {number}"))?);
    }
    ensure!(!cases.is_empty(), "it has no cases");
    Ok(cases)
}

fn case(line: &str, catalog: &Catalog) -> anyhow::Result<GradedCase> {
    let wanted = "a case must be {\"query\": …, \"expected\": [\"backend/tool\", …]}";
    let case: GradedCase = serde_json::from_str(line).context(wanted)?;
    ensure!(!case.query.trim().is_empty(), "the query is empty");
    for (i, name) in case.expected.iter().enumerate() {
        ensure!(catalog.names.contains(name), "`{name}` is not in the catalog: write it as backend/tool");
        ensure!(!case.expected[..i].contains(name), "`{name}` is expected twice");
    }
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line() {
        let catalog = Catalog { backends: 1, names: vec!["a/t".to_owned()], ..Catalog::default() };
        let good = "{\"query\": \"q\", \"expected\": [\"a/t\"]}\n\n";
        assert_eq!(parse(&good.repeat(2), &catalog).unwrap().len(), 2);
        let error = |line: &str| format!("{:#}", parse(&format!("{good}{line}"), &catalog).err().unwrap());
        assert!(error("{").contains("line 3: a case must be"));
        assert!(error(r#"{"query": "q"}"#).contains("missing field `expected`"));
        assert!(
            error(r#"{"query": "q", "expected": ["a/x"]}"#).contains("line 3: `a/x` is not in the catalog")
        );
        assert!(error(r#"{"query": " ", "expected": []}"#).contains("the query is empty"));
        assert!(error(r#"{"query": "q", "expected": ["a/t", "a/t"]}"#).contains("twice"));
        assert!(parse("\n", &catalog).is_err());
    }
}
