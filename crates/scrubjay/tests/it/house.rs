//! Checks the documents for contributors against the repository: named files exist, searches find something, versions
//! agree, crates depend on each other as ARCHITECTURE.md says, and ignored tests say what they need.

use std::path::{Path, PathBuf};

use regex::Regex;

/// What a test may need from the machine, by the names that `scripts/test --without` uses.
const NEEDS: [&str; 6] = ["peers", "postgres", "strace", "faketime", "go", "root"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns all source files below a directory, or the file itself, as paths from the repository's root.
fn sources(below: &str) -> Vec<String> {
    let root = repository();
    let (mut found, mut waiting) = (Vec::new(), vec![root.join(below)]);
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            waiting.extend(entries.filter(|entry| !entry.ends_with("target")));
        } else if path.extension().is_some_and(|extension| extension == "rs") || path == root.join(below) {
            found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the cells of each row of the table below a heading of CONTRIBUTING.md.
fn rows<'a>(manual: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = manual.split_once(heading).expect("the heading");
    let section = section.split("\n## ").next().unwrap();
    let table = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    table.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn the_ten_questions_name_existing_files_and_working_searches() {
    let manual = read("CONTRIBUTING.md");
    let rows = rows(&manual, "\n## Ten questions\n");
    assert_eq!(rows.len(), 10);
    let form = Regex::new(r"^rg '([^']+)' (\S+)$").unwrap();
    for row in rows {
        let [question, files, search] = row[..] else { panic!("{row:?} has three cells") };
        let files = quoted(files);
        assert!((1..=3).contains(&files.len()), "{question}: {files:?}");
        for file in &files {
            assert!(repository().join(file).is_file(), "{question}: there is no {file}");
        }
        let search = form.captures(quoted(search)[0]).unwrap_or_else(|| panic!("{question}: {search}"));
        let pattern = Regex::new(&search[1]).unwrap();
        let finds = |file: &String| read(file).lines().any(|line| pattern.is_match(line));
        let found: Vec<String> = sources(&search[2]).into_iter().filter(finds).collect();
        assert!(
            found.iter().any(|file| files.contains(&file.as_str())),
            "{question}: {} finds nothing in {files:?}, but in {found:?}",
            &search[0]
        );
    }
}

/// Files that a worked example creates, and that the repository must therefore not have yet.
const CREATED_BY_EXAMPLES: [&str; 3] = [
    "crates/scrubjay/src/commands/tape/words.rs",
    "crates/scrubjay-tools/src/progress/delete.rs",
    "crates/scrubjay-core/src/analysis/growth.rs",
];

#[test]
fn worked_examples_change_files_that_are_there_and_create_others() {
    let manual = read("CONTRIBUTING.md");
    let (_, examples) = manual.split_once("\n## Worked examples\n").expect("the heading");
    let named =
        quoted(examples).into_iter().filter(|name| name.starts_with("crates/") || name.starts_with("docs/"));
    for path in named {
        let is_created = CREATED_BY_EXAMPLES.contains(&path);
        assert_eq!(repository().join(path).exists(), !is_created, "{path}");
    }
    assert!(CREATED_BY_EXAMPLES.iter().all(|path| examples.contains(path)));
}

#[test]
fn the_map_names_existing_files() {
    let all = sources("crates").into_iter().chain(sources("benches")).chain(sources("tests"));
    let all: Vec<String> = all.filter(|path| path.contains("/src/") || path.starts_with("tests/")).collect();
    let map = read("ARCHITECTURE.md");
    assert!(map.lines().count() < 400);
    let named = quoted(&map).into_iter().filter(|name| name.ends_with(".rs") && !name.contains([' ', '<']));
    let missing: Vec<&str> = named
        .filter(|name| !all.iter().any(|path| format!("/{path}").ends_with(&format!("/{name}"))))
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names missing files: {missing:?}");
}

#[test]
fn every_ignored_test_names_what_it_needs() {
    // Split in two, so that the search does not find this line.
    let attribute = Regex::new(concat!("#", r#"\[ignore(?: = "([^"]*)")?\]"#)).unwrap();
    let name = Regex::new(r"\bfn ([$\w]+)").unwrap();
    for file in sources("crates") {
        let text = read(&file);
        for found in attribute.captures_iter(&text) {
            let reason = found.get(1).map_or("", |reason| reason.as_str());
            let test = &name.captures(&text[found.get(0).unwrap().end()..]).expect("a function")[1];
            let is_need = reason
                .strip_prefix("needs ")
                .is_some_and(|needs| needs.split(" and ").all(|need| NEEDS.contains(&need)));
            assert!(
                is_need || test.ends_with("_in_child_process"),
                "{file}: {test} is ignored because \"{reason}\", and scripts/test would not run it"
            );
        }
    }
}

#[test]
fn the_changelog_begins_with_this_version() {
    let changelog = read("CHANGELOG.md");
    let newest = changelog.lines().find_map(|line| line.strip_prefix("## ")).expect("a release");
    assert_eq!(newest.split(' ').next(), Some(env!("CARGO_PKG_VERSION")));
}

/// A crate of the workspace, as `cargo metadata` describes it.
struct Crate {
    name: String,
    /// The names of its dependencies, except those of its tests.
    dependencies: Vec<String>,
}

/// Returns the crates of the workspace.
fn workspace() -> Vec<Crate> {
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let dependencies = dependencies.filter(|dependency| dependency["kind"] != "dev");
            let dependencies = dependencies.map(|dependency| text(&dependency["name"])).collect();
            Crate { name: text(&package["name"]), dependencies }
        })
        .collect()
}

#[test]
fn crates_depend_on_each_other_as_the_map_says() {
    let map = read("ARCHITECTURE.md");
    let listed = map.split("```text\n").nth(1).expect("the list of crates").split("\n```").next().unwrap();
    let listed: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let workspace = workspace();
    let names: Vec<&str> = workspace.iter().map(|found| found.name.as_str()).collect();
    for found in workspace.iter().filter(|found| found.name != "scrubjay-bench") {
        let row = listed.iter().position(|row| row[0] == found.name);
        let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md does not list {}", found.name));
        let used = found.dependencies.iter().filter(|name| names.contains(&name.as_str()));
        let mut used: Vec<&str> = used.map(|name| name.trim_start_matches("scrubjay-")).collect();
        let mut expected = listed[row][1..].to_vec();
        used.sort_unstable();
        expected.sort_unstable();
        assert_eq!(used, expected, "the dependencies of {} and those in ARCHITECTURE.md", found.name);
        for name in used {
            let below = listed[row + 1..].iter().any(|row| row[0].trim_start_matches("scrubjay-") == name);
            assert!(below, "{} uses {name}, which is not below it in the list", found.name);
        }
    }
    assert_eq!(listed.len() + 1, workspace.len(), "ARCHITECTURE.md lists a crate that does not exist");
}

#[test]
fn libraries_stay_in_the_crates_that_the_map_names() {
    let workspace = workspace();
    // The crate itself and all that it uses, directly or not.
    let reached_from = |name: &str| {
        let mut reached = vec![name.to_owned()];
        let mut at = 0;
        while at < reached.len() {
            if let Some(found) = workspace.iter().find(|found| found.name == reached[at]) {
                let new = found.dependencies.iter().filter(|name| !reached.contains(name));
                let new: Vec<String> = new.cloned().collect();
                reached.extend(new);
            }
            at += 1;
        }
        reached
    };
    for (name, absent) in [
        ("scrubjay-gateway", &["sqlx", "rmcp"][..]),
        ("scrubjay-tape", &["sqlx", "rmcp", "tokio"]),
        ("scrubjay-core", &["sqlx", "rmcp", "tokio", "rustix"]),
    ] {
        let reached = reached_from(name);
        for library in absent {
            assert!(!reached.iter().any(|reached| reached == library), "{name} uses {library}");
        }
    }
    for (library, only) in
        [("sqlx", "scrubjay-store"), ("rmcp", "scrubjay-tools"), ("clap_complete", "scrubjay")]
    {
        let users = workspace.iter().filter(|found| found.dependencies.iter().any(|name| name == library));
        let users: Vec<&str> = users.map(|found| found.name.as_str()).collect();
        assert_eq!(users, [only], "who uses {library}");
    }
}
