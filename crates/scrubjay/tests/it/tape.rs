//! `scrubjay tape …` on the command line: its output, its errors and its exit codes.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{ExportedTape, Lab, kill, text};

/// A few lines of every kind, one of them not UTF-8.
const LINES: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"}}\n\
    {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n\
    not \xff\xfe JSON\n\n\
    {\"jsonrpc\":\"2.0\",\"method\":\"the last, without an ending\"}";

/// Makes many lines, so that the output of any command is more than a pipe holds.
fn many_lines() -> Vec<u8> {
    (0..1500)
        .flat_map(|n| format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"m\"}}\n").into_bytes())
        .collect()
}

#[test]
fn every_command_prints_json_on_request() {
    let lab = Lab::new();
    assert_eq!(lab.json(&["tape", "ls", "--json"]), json!([]));
    assert_eq!(lab.json(&["tape", "verify", "--json"]), json!([]));
    let id = lab.record("n", LINES);
    let exported = lab.export(&id);
    let entries: Vec<Value> = exported.entries.iter().map(|entry| entry.json.clone()).collect();
    assert_eq!(lab.json(&["tape", "show", "--json"]), json!(entries));
    assert_eq!(lab.json(&["tape", "show", &id, "--entry", "1", "--json"]), entries[1]);
    assert_eq!(lab.json(&["tape", "show", "--from", "2", "--limit", "2", "--json"]), json!(entries[2..4]));
    let followed = lab.run_ok(&["tape", "follow", &id, "--json"]);
    let followed: Vec<Value> = followed
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(followed, entries);
    assert_eq!(lab.json(&["tape", "ls", "--json"])[0]["id"], id.as_str());
    assert_eq!(lab.json(&["tape", "verify", &id[..5], "--json"])[0]["entries"], entries.len());
    assert_eq!(lab.json(&["tape", "rm", &id, "--yes", "--json"]), json!({ "removed": [id], "in_doubt": [] }));
    assert_eq!(lab.json(&["tape", "ls", "--json"]), json!([]));
}

#[test]
fn text_output_shows_names_methods_and_results() {
    let lab = Lab::new();
    let id = lab.record("my server", LINES);
    let printed = |arguments: &[&str]| String::from_utf8(lab.run_ok(arguments)).unwrap();
    let ls = printed(&["tape", "ls"]);
    assert!(ls.contains("my server") && ls.contains(&id[..6]) && ls.contains("sealed"), "{ls}");
    let show = printed(&["tape", "show", &id]);
    assert!(show.contains("tools/call t") && show.contains("invalid utf8"), "{show}");
    let one = printed(&["tape", "show", &id, "--entry", "0"]);
    assert!(one.contains("\"method\": \"tools/call\""), "{one}");
    let verify = printed(&["tape", "verify"]);
    assert!(verify.contains("ok") && verify.contains("chain"), "{verify}");
}

#[test]
fn an_exported_tape_is_imported_unchanged() {
    let there = Lab::new();
    let id = there.record("n", &[LINES, b"\n", &many_lines()].concat());
    for format in ["jsonl", "native"] {
        let here = Lab::new();
        let file = here.file("exported");
        there.run_ok(&["tape", "export", &id, "--format", format, "--output", &file]);
        let piped = there.run_ok(&["tape", "export", &id, "--format", format]);
        assert!(piped == here.read("exported"), "{format}: to a file as to a pipe");
        assert_eq!(here.json(&["tape", "import", &file, "--json"]), json!({ "id": id }));
        let (theirs, mut ours) = (there.export(&id), here.export(&id));
        let links = ours.header.as_object_mut().unwrap().remove("links").unwrap();
        assert!(ours == theirs, "{format}: other entries");
        // But it is marked as imported.
        assert_eq!(links["imported"]["format"], format);
        assert!(text(&links["imported"]["by"]).contains("tape import"), "{links}");
        let output = String::from_utf8(here.run_ok(&["tape", "verify"])).unwrap();
        assert!(output.contains("note: imported ") && output.contains(&format!("from {format}")), "{output}");
        here.verify();
        let output = here.run_failing(&["tape", "import", &file]);
        assert!(output.contains("already in this data directory") && output.contains("tape rm"), "{output}");
    }
}

#[test]
fn a_live_tape_is_exported_up_to_its_last_entry() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).start();
    wrapped.send_line("one");
    wrapped.line();
    let file = lab.file("exported");
    lab.run_ok(&["tape", "export", "--format", "native", "-o", &file]);
    wrapped.send_line("two");
    wrapped.line();
    let elsewhere = Lab::new();
    elsewhere.run_ok(&["tape", "import", &file]);
    assert_eq!(elsewhere.only_tape().entries.len(), 2);
    assert_eq!(lab.only_tape().entries.len(), 4);
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn files_that_are_no_export_are_refused() {
    let lab = Lab::new();
    let id = lab.record("n", LINES);
    let jsonl = lab.run_ok(&["tape", "export", &id]);
    let native = lab.run_ok(&["tape", "export", &id, "--format", "native"]);
    let mut altered = native.clone();
    altered[native.len() / 2] ^= 1;
    let half = &jsonl[..jsonl.len() / 2];
    let elsewhere = Lab::new();
    for (what, bytes) in [
        ("empty", &b""[..]),
        ("rubbish", b"rubbish\n"),
        ("binary", &[0, 159, 146, 150]),
        ("cut JSON Lines", half),
        ("altered", &altered),
        ("cut", &native[..native.len() - 10]),
        ("magic only", &native[..8]),
    ] {
        std::fs::write(elsewhere.file("exported"), bytes).unwrap();
        let output = elsewhere.run_failing(&["tape", "import", &elsewhere.file("exported")]);
        assert!(output.starts_with("scrubjay: "), "{what}: {output}");
        assert_eq!(elsewhere.tapes().len(), 0, "{what}");
        assert!(elsewhere.tape_ids().is_empty(), "{what}");
    }
    elsewhere.run_failing(&["tape", "import", "/no/such/file"]);
}

#[test]
fn unknown_and_ambiguous_names_are_reported() {
    let lab = Lab::new();
    let output = lab.run_failing(&["tape", "show"]);
    assert!(output.contains("scrubjay wrap"), "nothing is there yet: {output}");
    let first = lab.record("n", LINES);
    // A second tape whose id has the same prefix.
    let exported = String::from_utf8_lossy(&lab.run_ok(&["tape", "export", &first])).into_owned();
    let last = if first.ends_with('0') { "1" } else { "0" };
    let second = format!("{}{last}", &first[..first.len() - 1]);
    std::fs::write(lab.file("alike"), exported.replacen(&first, &second, 1)).unwrap();
    lab.run_ok(&["tape", "import", &lab.file("alike")]);
    for command in ["show", "export", "verify", "rm", "follow"] {
        let output = lab.run_failing(&["tape", command, "zzzzzz"]);
        assert!(output.contains("zzzzzz") && output.contains("tape ls"), "{command}: {output}");
        let output = lab.run_failing(&["tape", command, &first[..4]]);
        assert!(output.contains(&first) && output.contains(&second), "{command}: {output}");
    }
    // One wrong name among right ones: nothing is removed.
    lab.run_failing(&["tape", "rm", &first, "zzzzzz"]);
    assert_eq!(lab.tapes().len(), 2);
    lab.run_ok(&["tape", "rm", &first, &second, "--yes"]);
    assert_eq!(lab.tapes().len(), 0);
    let output = lab.run_failing(&["tape", "follow"]);
    assert!(output.contains("right now"), "{output}");
    for usage in
        [&["tape", "rm"][..], &["tape", "show", "--entry", "x"], &["tape", "nonsense"], &["nonsense"]]
    {
        assert_eq!(lab.run(usage).code, 2, "{usage:?}");
    }
}

#[test]
fn a_live_tape_is_not_removed() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).start();
    wrapped.send_line("one");
    wrapped.line();
    let id = lab.only_tape().id();
    let output = lab.run_failing(&["tape", "rm", &id]);
    assert!(output.contains("being recorded") && output.contains("nothing was removed"), "{output}");
    wrapped.send_line("two");
    wrapped.line();
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(lab.only_tape().of_kind("message").count(), 4);
    lab.run_ok(&["tape", "rm", &id, "--yes"]);
    assert!(lab.tapes().is_empty());
}

#[test]
fn following_ends_with_the_connection() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).with(&["--max-tape-size", "4kB"]).start();
    wrapped.send_line("first");
    wrapped.line();
    let mut follower = lab.start(&["tape", "follow", "--json"]);
    let mut reader = lab.start(&["tape", "follow"]);
    // Both follow the first tape before there is another.
    let head = reader.line().expect("a head, once there is something to show");
    let mut followed = vec![follower.message()];
    // Enough messages for the connection to continue on other tapes.
    for number in 0..30 {
        let line = format!("{number} {}", "x".repeat(500));
        wrapped.send_line(&line);
        wrapped.line();
        // Each entry is shown while the connection continues.
        while !followed.iter().any(|entry: &Value| entry["raw"] == line.as_str()) {
            followed.push(follower.message());
        }
    }
    assert_eq!(wrapped.leave(), 0);
    let rest = String::from_utf8(follower.rest()).unwrap();
    followed.extend(rest.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    assert_eq!(follower.exit_code(), 0);
    let mut tapes: Vec<ExportedTape> = lab.tape_ids().iter().map(|id| lab.export(id)).collect();
    tapes.sort_by_key(|tape| tape.header["part"].as_u64());
    assert!(tapes.len() > 2, "{} tapes", tapes.len());
    let recorded: Vec<Value> =
        tapes.into_iter().flat_map(|tape| tape.entries).map(|entry| entry.json).collect();
    assert_eq!(followed, recorded);
    let shown = String::from_utf8(reader.rest()).unwrap();
    assert_eq!(reader.exit_code(), 0);
    assert_eq!(shown.lines().count(), recorded.len(), "a row for each, under {head}: {shown}");
}

#[test]
fn following_ends_when_the_recorder_is_killed() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).start();
    wrapped.send_line("first");
    wrapped.line();
    let mut follower = lab.start(&["tape", "follow", "--json"]);
    assert_eq!(follower.message()["raw"], "first");
    kill(wrapped.worker(), Signal::KILL);
    follower.rest();
    assert_eq!(follower.exit_code(), 0);
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    let lab = Lab::new();
    let id = lab.record("n", &many_lines());
    let show: [&[&str]; 9] = [
        &["tape", "show", "--limit", "5000"],
        &["tape", "show", "--json", "--limit", "5000"],
        &["tape", "show", "--entry", "7", "--json"],
        &["tape", "export"],
        &["tape", "export", "--format", "native"],
        &["tape", "follow", &id],
        &["tape", "follow", &id, "--json"],
        &["tape", "ls", "--json"],
        &["completions", "bash"],
    ];
    for arguments in show {
        let mut running = lab.start(arguments);
        running.await_output(1);
        running.close_stdout();
        assert_eq!((running.exit_code(), running.stderr_text().as_str()), (0, ""), "{arguments:?}");
        // The reader has left before the first byte.
        let mut running = lab.start(arguments);
        running.close_stdout();
        assert_eq!((running.exit_code(), running.stderr_text().as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn latest_is_the_newest_tape() {
    let lab = Lab::new();
    lab.record("older", LINES);
    lab.record("newer", LINES);
    assert_eq!(lab.export("latest").header["name"], "newer");
    let names: Vec<String> = lab.tapes().iter().map(|tape| text(&tape["name"]).to_owned()).collect();
    assert_eq!(names, ["newer", "older"]);
    assert_eq!(lab.json(&["tape", "ls", "--limit", "1", "--json"]).as_array().map(Vec::len), Some(1));
}
