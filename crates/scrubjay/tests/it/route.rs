//! Grading the router from the command line, on the evaluation set.

use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Lab, SCRUBJAY};

const SET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/routing");

fn eval(lab: &Lab, arguments: &[&str]) -> Output {
    let mut command = Command::new(SCRUBJAY);
    command.args(["route", "eval"]).args(arguments).env("HOME", lab.file("home")).output().unwrap()
}

#[test]
fn eval_compares_two_settings() {
    let lab = Lab::new();
    let (catalog, cases) = (format!("{SET}/catalog.json"), format!("{SET}/held-out.jsonl"));
    let files = ["--catalog", &catalog, "--cases", &cases, "--compare", "bm25"];
    let output = eval(&lab, &[&files[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [full, plain] = [0, 1].map(|i| &report["settings"][i]);
    assert_eq!((&full["setting"], &plain["setting"]), (&"full".into(), &"bm25".into()));
    let recall = |of: &Value| of["recall"][2].as_f64().unwrap();
    assert!(recall(full) > recall(plain), "{report}");
    let tokens = |value: &Value| value.as_u64().unwrap();
    assert!(tokens(&full["tokens_shortlist"]) * 5 < tokens(&report["tokens_all"]), "{report}");
    let output = eval(&lab, &files);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("206 tools of 17 backends; 127 cases"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("MEASURE") && line.ends_with("bm25")), "{table}");
    assert!(table.contains("recall@5") && table.contains("abstains if none fits"), "{table}");
}

#[test]
fn an_invalid_file_is_reported_with_its_line() {
    let lab = Lab::new();
    let catalog = format!("{SET}/catalog.json");
    let cases = lab.file("cases.jsonl");
    std::fs::write(&cases, "{\"query\": \"q\", \"expected\": []}\n{\"query\": \"q\"}\n").unwrap();
    let error_of = |catalog: &str, cases: &str| {
        let output = eval(&lab, &["--catalog", catalog, "--cases", cases]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let wrong = error_of(&catalog, &cases);
    assert!(wrong.contains("cases.jsonl: line 2: a case must be"), "{wrong}");
    let absent = error_of("/nowhere.json", &cases);
    assert!(absent.contains("cannot read /nowhere.json"), "{absent}");
}
