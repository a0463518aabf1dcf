//! How a user detects that recordings were changed: `tape verify`, checkpoints, and the mark of imports.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use scrubjay_tape::checkpoint::Checkpoint;
use scrubjay_tape::format::header::{Header, TapeKind};
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::seal::write_sealed_as;
use serde_json::Value;

use crate::harness::{Lab, text};

const LINE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n";

/// Records a connection on several tapes, and returns their ids in order.
fn record_rotated(lab: &Lab) -> Vec<String> {
    let mut wrapped = lab.wrap(&["cat"]).with(&["--max-tape-size", "3000"]).start();
    for number in 0..30 {
        wrapped.send_line(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"m\",\"params\":\"{}\"}}",
            "x".repeat(150)
        ));
        wrapped.line();
    }
    assert_eq!(wrapped.leave(), 0);
    lab.start_again();
    let mut tapes: Vec<(u64, String)> =
        lab.tape_ids().into_iter().map(|id| (lab.export(&id).header["part"].as_u64().unwrap(), id)).collect();
    tapes.sort_unstable();
    assert!(tapes.len() > 3, "{tapes:?}");
    tapes.into_iter().map(|(_, id)| id).collect()
}

fn file_of(lab: &Lab, id: &str) -> PathBuf {
    let files = std::fs::read_dir(lab.data().join("tapes")).unwrap();
    let mut paths = files.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_str().unwrap().contains(id)).unwrap()
}

/// Forges a recording with the product's own commands: export, edit, import.
fn re_import_edited(lab: &Lab, id: &str) {
    let exported = String::from_utf8(lab.run_ok(&["tape", "export", id])).unwrap();
    assert!(exported.contains("xxx"));
    let edited = lab.file("edited.jsonl");
    std::fs::write(&edited, exported.replacen("xxx", "yyy", 1)).unwrap();
    std::fs::remove_file(file_of(lab, id)).unwrap();
    lab.run_ok(&["tape", "import", &edited]);
}

#[test]
fn an_edited_and_reimported_tape_is_detected_and_marked_as_imported() {
    let lab = Lab::new();
    let tapes = record_rotated(&lab);
    lab.verify();
    re_import_edited(&lab, &tapes[1]);
    let output = lab.run(&["tape", "verify"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.code, 1, "{shown}");
    let line = shown.lines().find(|line| line.starts_with(&tapes[1])).unwrap();
    assert!(line.contains("BROKEN LINK") && line.contains("is not what it was"), "{shown}");
    assert!(line.contains(&tapes[2]) && line.contains("it was imported"), "{shown}");
    assert!(shown.contains("note: imported ") && shown.contains("from jsonl"), "{shown}");
    // It is also noticed if only this tape is verified, and in JSON.
    let output = lab.run(&["tape", "verify", &tapes[1], "--json"]);
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.code, &checked[0]["sound"]), (1, &Value::Bool(false)));
    assert_eq!(checked[0]["links"][0]["problem"], "changed");
    assert_eq!(checked[0]["imported"]["format"], "jsonl");
    // The others did not change.
    assert_eq!(lab.run(&["tape", "verify", &tapes[0]]).code, 0);
}

#[test]
fn reimporting_the_neighbours_does_not_excuse_a_missing_tape() {
    for format in ["jsonl", "native"] {
        let lab = Lab::new();
        let tapes = record_rotated(&lab);
        let exported = |id: &String| {
            let file = lab.file(id);
            std::fs::write(&file, lab.run_ok(&["tape", "export", id, "--format", format])).unwrap();
            file
        };
        let files: Vec<String> = [&tapes[0], &tapes[2]].map(exported).into();
        tapes[..3].iter().for_each(|id| std::fs::remove_file(file_of(&lab, id)).unwrap());
        files.iter().for_each(|file| drop(lab.run_ok(&["tape", "import", file])));
        let output = lab.run(&["tape", "verify"]);
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.code, 1, "{shown}");
        assert_eq!(shown.matches(&format!("tape {}, which is missing", tapes[1])).count(), 2, "{shown}");
        // Alone in another data directory, it looks like a recording that was made elsewhere.
        let other = Lab::new();
        other.run_ok(&["tape", "import", &files[1]]);
        let shown = String::from_utf8(other.run_ok(&["tape", "verify"])).unwrap();
        assert!(shown.contains(&format!("it continues tape {}, which is not here", tapes[1])), "{shown}");
    }
}

#[test]
fn a_missing_tape_is_distinguished_from_a_removed_one() {
    let lab = Lab::new();
    let tapes = record_rotated(&lab);
    lab.run_ok(&["tape", "rm", &tapes[0], "--yes"]);
    let shown = String::from_utf8(lab.run_ok(&["tape", "verify"])).unwrap();
    assert!(shown.contains(&format!("tape {}, which was removed with `tape rm`", tapes[0])), "{shown}");
    std::fs::remove_file(file_of(&lab, &tapes[2])).unwrap();
    let output = lab.run(&["tape", "verify"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.code, 1);
    assert_eq!(shown.matches(&format!("tape {}, which is missing", tapes[2])).count(), 2, "{shown}");
}

#[test]
fn a_checkpoint_detects_changes_of_earlier_recordings() {
    let lab = Lab::new();
    let tapes = record_rotated(&lab);
    let (file, key) = (lab.file("checkpoint.json"), lab.file("key"));
    let signed = lab.json(&["tape", "checkpoint", "-o", &file, "--key", &key, "--new-key", "--json"]);
    let public = text(&signed["signature"]["public_key"]);
    let root = text(&signed["root"]);
    assert_eq!(signed["tapes"].as_array().unwrap().len(), tapes.len());
    for proof in [&["--public-key", public][..], &["--root", root], &[]] {
        let shown = lab.run_ok(&[&["tape", "verify", "--checkpoint", &file], proof].concat());
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.contains("nothing that was recorded before it was changed"), "{shown}");
    }
    // A tape that grew is not reported as tampering, and a removed one is reported as removed.
    let later = lab.record("later", b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n");
    lab.run_ok(&["tape", "rm", &tapes[0], "--yes"]);
    let verify = ["tape", "verify", "--checkpoint", &file, "--public-key", public, "--json"];
    let checked = lab.json(&verify);
    assert_eq!(checked["checkpoint"]["new_tapes"], serde_json::json!([later]));
    let became = |checked: &Value, id: &str| {
        let listed = checked["checkpoint"]["tapes"].as_array().unwrap().clone();
        listed.into_iter().find(|tape| tape["tape"] == id).unwrap()
    };
    assert_eq!(became(&checked, &tapes[0])["is"], "removed");
    assert_eq!(became(&checked, &tapes[1])["is"], "same");
    let last = tapes.last().unwrap();
    re_import_edited(&lab, last);
    let output = lab.run(&verify);
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.code, &checked["checkpoint"]["is_fine"]), (1, &Value::Bool(false)));
    let changed = became(&checked, last);
    assert_eq!((&changed["is"], &changed["first"]), (&Value::from("changed"), &changed["last"]), "{changed}");
    let shown = lab.run(&["tape", "verify", "--checkpoint", &file]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("  {last}  CHANGED: ")), "{shown}");
}

#[test]
fn an_altered_or_foreign_checkpoint_is_refused() {
    let lab = Lab::new();
    record_rotated(&lab);
    let (file, key, other) = (lab.file("checkpoint.json"), lab.file("key"), lab.file("other"));
    lab.run_ok(&["tape", "checkpoint", "-o", &file, "--key", &key, "--new-key"]);
    let foreign = lab.json(&["tape", "checkpoint", "--key", &other, "--new-key", "--json"]);
    let foreign = text(&foreign["signature"]["public_key"]);
    let refused = lab.run_failing(&["tape", "verify", "--checkpoint", &file, "--public-key", foreign]);
    assert!(refused.contains("did not sign it"), "{refused}");
    let refused = lab.run_failing(&["tape", "verify", "--checkpoint", &file, "--root", "00"]);
    assert!(refused.contains("not the checkpoint that you noted down"), "{refused}");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, whole.replacen("\"sealed\":true", "\"sealed\":false", 1)).unwrap();
    let refused = lab.run_failing(&["tape", "verify", "--checkpoint", &file]);
    assert!(refused.contains("the checkpoint itself was changed"), "{refused}");
    lab.run_ok(&["tape", "checkpoint", "-o", &file]);
    let refused = lab.run_failing(&["tape", "verify", "--checkpoint", &file, "--public-key", foreign]);
    assert!(refused.contains("it is not signed"), "{refused}");
    // Keys.
    let refused = lab.run_failing(&["tape", "checkpoint", "--key", &key, "--new-key"]);
    assert!(refused.contains("cannot make a new key"), "{refused}");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = lab.run_failing(&["tape", "checkpoint", "--key", &key]);
    assert!(refused.contains("others may use it") && refused.contains("chmod 600"), "{refused}");
}

/// Hides a conversation from lists: writes the same entries with another header.
fn hide(lab: &Lab, id: &str) {
    let path = file_of(lab, id);
    let tape = Tape::open(&path).unwrap();
    let header = Header { noted_kind: Some(TapeKind::Backend), ..tape.header().unwrap().clone() };
    write_sealed_as(&tape, &header, &path).unwrap();
}

#[test]
fn a_checkpoint_reports_changed_headers_and_imports() {
    let lab = Lab::new();
    let (hidden, moved) = (lab.record("a", LINE), lab.record("b", LINE));
    let (file, native) = (lab.file("checkpoint.json"), lab.file("native"));
    let made = lab.json(&["tape", "checkpoint", "-o", &file, "--json"]);
    let verify = ["tape", "verify", "--checkpoint", &file, "--root", text(&made["root"])];
    std::fs::write(&native, lab.run_ok(&["tape", "export", &moved, "--format", "native"])).unwrap();
    lab.run_ok(&["tape", "rm", &moved, "--yes"]);
    lab.run_ok(&["tape", "import", &native]);
    let shown = String::from_utf8(lab.run_ok(&verify)).unwrap();
    assert!(
        shown.contains(&format!("  {moved}  its ")) && shown.contains("imported since, from native"),
        "{shown}"
    );
    hide(&lab, &hidden);
    assert_eq!(lab.run(&["tape", "verify"]).code, 0, "only a checkpoint detects it");
    let output = lab.run(&verify);
    let shown = String::from_utf8(output.stdout).unwrap();
    let line = format!("  {hidden}  CHANGED: its entries are what they were, but its header is not (kind)");
    assert!(output.code == 1 && shown.contains(&line), "{shown}");
}

#[test]
fn a_checkpoint_of_an_earlier_version_reports_what_it_does_not_cover() {
    let lab = Lab::new();
    let id = lab.record("a", LINE);
    let file = lab.file("checkpoint.json");
    lab.run_ok(&["tape", "checkpoint", "-o", &file]);
    let mut old: Checkpoint = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    old.checkpoint = 1;
    old.tapes.iter_mut().for_each(|tape| (tape.header, tape.footer) = (None, None));
    let listed = serde_json::to_vec(&(1, old.made_wall_ns, &old.tapes)).unwrap();
    old.root = blake3::hash(&[&b"scrubjay checkpoint\n"[..], &listed].concat()).to_hex().to_string();
    std::fs::write(&file, serde_json::to_vec(&old).unwrap()).unwrap();
    hide(&lab, &id);
    let shown = String::from_utf8(lab.run_ok(&["tape", "verify", "--checkpoint", &file])).unwrap();
    assert!(shown.contains("an earlier version made it: it does not cover footers"), "{shown}");
    assert!(shown.contains("no entry that was recorded before it was changed"), "{shown}");
}
