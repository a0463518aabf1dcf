//! A tape that was altered is reported as damaged and read as far as possible, and no command crashes.

use std::path::PathBuf;

use crate::harness::Lab;
use crate::random::Random;

const ALTERATIONS: u32 = 80;

/// Returns the file of the only tape.
fn tape_file(lab: &Lab) -> PathBuf {
    let mut files = std::fs::read_dir(lab.data().join("tapes")).unwrap();
    files.next().expect("a tape").unwrap().path()
}

/// Runs every command that reads tapes: each must end with a message, no matter what is wrong with the tape.
fn look_at_everything(lab: &Lab, what: &str) {
    for arguments in [
        &["tape", "ls"][..],
        &["tape", "ls", "--json"],
        &["tape", "show"],
        &["tape", "show", "--json"],
        &["tape", "show", "--entry", "3"],
        &["tape", "export"],
        &["tape", "export", "--format", "native"],
        &["tape", "follow", "latest"],
    ] {
        let output = lab.run(arguments);
        assert!(matches!(output.code, 0 | 1), "{what}: {arguments:?}: {}", output.stderr);
        assert!(!output.stderr.contains("panicked"), "{what}: {arguments:?}: {}", output.stderr);
    }
}

fn is_sound(lab: &Lab, what: &str) -> bool {
    let output = lab.run(&["tape", "verify", "--json"]);
    assert_eq!(output.stderr, "", "{what}");
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let sound = checked[0]["sound"] == true;
    assert_eq!(output.code, i32::from(!sound), "{what}");
    sound
}

/// Makes lines that do not compress, so that most of the file is entries, in several blocks.
fn lines(random: &mut Random) -> Vec<u8> {
    let mut lines = Vec::new();
    for number in 0..100 {
        let noise: String =
            (0..3000).map(|_| char::from(b'a' + u8::try_from(random.below(26)).unwrap())).collect();
        lines.extend(format!("{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"{noise}\"}}\n").bytes());
    }
    lines
}

#[test]
fn any_altered_byte_of_a_sealed_tape_is_detected() {
    let lab = Lab::new();
    let mut random = Random::from_environment();
    lab.record("n", &lines(&mut random));
    let file = tape_file(&lab);
    let whole = std::fs::read(&file).unwrap();
    assert!(is_sound(&lab, "whole"));
    for number in 0..ALTERATIONS {
        let at = random.below(whole.len());
        let bit = 1 << random.below(8);
        let mut altered = whole.clone();
        altered[at] ^= bit;
        std::fs::write(&file, altered).unwrap();
        let what = format!("byte {at} of {}, bit {bit}", whole.len());
        assert!(!is_sound(&lab, &what), "{what}");
        if number % 8 == 0 {
            look_at_everything(&lab, &what);
        }
    }
    for length in [0, 1, 8, 19, 20, 300, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&file, &whole[..length]).unwrap();
        let what = format!("cut to {length}");
        assert!(!is_sound(&lab, &what), "{what}");
        look_at_everything(&lab, &what);
    }
}

#[test]
fn the_intact_entries_of_a_damaged_tape_are_exported() {
    let lab = Lab::new();
    lab.record("n", &lines(&mut Random::from_environment()));
    let before = lab.only_tape().entries.len();
    let file = tape_file(&lab);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 100].fill(0);
    std::fs::write(&file, bytes).unwrap();
    let output = lab.run(&["tape", "verify"]);
    let words = String::from_utf8(output.stdout).unwrap();
    assert!(output.code == 1 && words.contains("DAMAGED") && words.contains("entry"), "{words}");
    let output = lab.run(&["tape", "export"]);
    assert!(output.code == 1 && output.stderr.contains("left out"), "{}", output.stderr);
    let left = output.stdout.split(|byte| *byte == b'\n').count() - 2;
    assert!(left > before / 4 && left < before, "{left} of {before} entries are left");
}
