//! Files that others could change: a data directory that is open to others is closed or refused, with a message.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::harness::{BACKGROUND_VARIABLE, CommandOutput, Lab, Running, SCRUBJAY};
use crate::needs;

const STRANGER: u32 = 65534;

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// Records something, so that there is a data directory.
fn lab_with_recording() -> Lab {
    let lab = Lab::new();
    lab.record("one", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    lab
}

/// Runs a command that must be refused, and must not change the files that it names.
fn refused(lab: &Lab, what: &Path, arguments: &[&str]) -> CommandOutput {
    let before = (mode(what), what.symlink_metadata().unwrap().uid());
    let output = lab.run(arguments);
    assert_eq!(output.code, 1, "{arguments:?}: {}", output.stderr);
    assert_eq!((mode(what), what.symlink_metadata().unwrap().uid()), before, "{arguments:?} touched it");
    output
}

#[test]
fn a_data_directory_open_to_others_is_closed_and_reported() {
    for open in [0o777, 0o775, 0o770, 0o755, 0o702] {
        let lab = lab_with_recording();
        let tape = std::fs::read_dir(lab.data().join("tapes")).unwrap().next().unwrap().unwrap().path();
        chmod(&tape, 0o666);
        chmod(&lab.data().join("tapes"), 0o777);
        chmod(lab.data(), open);
        let output = lab.run(&["tape", "ls"]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        for path in [lab.data(), &lab.data().join("tapes"), &tape] {
            assert!(
                output.stderr.contains(&format!("{}: its mode was", path.display())),
                "{}",
                output.stderr
            );
        }
        assert_eq!((mode(lab.data()), mode(&lab.data().join("tapes")), mode(&tape)), (0o700, 0o700, 0o600));
        assert_eq!(lab.run(&["tape", "ls"]).stderr, "", "it is reported once");
    }
}

#[test]
fn files_open_to_others_are_closed_and_reported() {
    let lab = lab_with_recording();
    // An index, a ledger, a list of trusted files: files that commands read first.
    lab.run(&["tape", "search", "ping"]);
    lab.run(&["progress", "log", "--project", "p", "t", "x"]);
    let project = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("scrubjay.yaml"), "log_level: debug\n").unwrap();
    let file = project.path().join("scrubjay.yaml");
    assert_eq!(lab.run(&["trust", "--yes", file.to_str().unwrap()]).code, 0);
    let names = std::fs::read_dir(lab.data()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = names.filter(|path| path.is_file()).collect();
    assert!(files.iter().any(|file| file.ends_with("index.db")) && files.len() >= 3, "{files:?}");
    for file in &files {
        chmod(file, 0o666);
        let output = lab.run(&["tape", "ls"]);
        assert!(
            output.code == 0 && output.stderr.contains(&format!("{}: its mode was 0666", file.display())),
            "{}",
            output.stderr
        );
        assert_eq!(mode(file), 0o600);
    }
}

/// If only a tape is open to others, the next recorder closes it; its directory protects it until then.
#[test]
fn a_tape_open_to_others_is_closed_by_the_next_recorder() {
    let lab = lab_with_recording();
    let tape = std::fs::read_dir(lab.data().join("tapes")).unwrap().next().unwrap().unwrap().path();
    chmod(&tape, 0o666);
    let mut wrapped = lab.wrap(&["cat"]).start();
    wrapped.send_line("{}");
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(mode(&tape), 0o600);
}

#[test]
#[ignore = "needs root"]
fn files_of_another_user_are_refused_and_not_changed() {
    needs::root();
    let commands: [&[&str]; 4] = [&["tape", "ls"], &["wrap", "--", "cat"], &["serve"], &["session", "ls"]];
    for below in ["", "tapes", "trust.json", "index.db", "ledger.db"] {
        let lab = lab_with_recording();
        let what = if below.is_empty() { lab.data().to_owned() } else { lab.data().join(below) };
        if !what.exists() {
            std::fs::write(&what, "{}").unwrap();
            chmod(&what, 0o600);
        }
        chown(&what, Some(STRANGER), None).unwrap();
        for command in commands {
            let output = refused(&lab, &what, command);
            let words = format!("{} belongs to another user (uid {STRANGER})", what.display());
            assert!(
                output.stderr.contains(&words) && output.stderr.contains("--data"),
                "{command:?} {}",
                output.stderr
            );
        }
    }
    // One tape in our directory belongs to another user: the others are read, that one is not.
    let lab = lab_with_recording();
    let id = lab.tape_ids().into_iter().next().unwrap();
    let tape = std::fs::read_dir(lab.data().join("tapes")).unwrap().next().unwrap().unwrap().path();
    chown(&tape, Some(STRANGER), None).unwrap();
    let output = refused(&lab, &tape, &["tape", "show", &id]);
    assert!(output.stderr.contains("belongs to another user"), "{}", output.stderr);
}

#[test]
fn a_data_directory_in_a_writable_parent_is_refused() {
    let lab = lab_with_recording();
    let above = lab.data().parent().unwrap().to_owned();
    for open in [0o777, 0o707] {
        chmod(&above, open);
        let output = refused(&lab, &above, &["tape", "ls"]);
        let words = format!("{} can be written by others (its mode is {open:04o})", above.display());
        assert!(output.stderr.contains(&words) && output.stderr.contains("chmod go-w"), "{}", output.stderr);
    }
    // As in /tmp (sticky bit), only owners can replace their files.
    chmod(&above, 0o1777);
    assert_eq!(lab.run(&["tape", "ls"]).code, 0);
    // The private group of a new user may write, another group may not.
    chmod(&above, 0o770);
    assert_eq!(lab.run(&["tape", "ls"]).code, 0);
    chmod(&above, 0o700);
}

#[test]
#[ignore = "needs root"]
fn a_data_directory_in_another_users_parent_is_refused() {
    needs::root();
    let lab = lab_with_recording();
    let above = lab.data().parent().unwrap().to_owned();
    chmod(&above, 0o770);
    chown(&above, None, Some(STRANGER)).unwrap();
    refused(&lab, &above, &["tape", "ls"]);
    chown(&above, Some(STRANGER), Some(0)).unwrap();
    chmod(&above, 0o755);
    assert!(refused(&lab, &above, &["tape", "ls"]).stderr.contains("belongs to another user"));
    chmod(&above, 0o700);
}

#[test]
fn a_symbolic_link_is_judged_by_its_target() {
    let lab = lab_with_recording();
    let elsewhere = tempfile::tempdir().unwrap();
    let real = elsewhere.path().join("real");
    std::fs::rename(lab.data(), &real).unwrap();
    symlink(&real, lab.data()).unwrap();
    assert_eq!(lab.run(&["tape", "ls"]).code, 0);
    chmod(&real, 0o777);
    let output = lab.run(&["tape", "ls"]);
    assert!(output.code == 0 && output.stderr.contains("its mode was 0777"), "{}", output.stderr);
    chmod(elsewhere.path(), 0o777);
    refused(&lab, elsewhere.path(), &["tape", "ls"]);
    chmod(elsewhere.path(), 0o700);
    // A database outside the data directory is protected, too.
    let shared = elsewhere.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    chmod(&shared, 0o777);
    let config = lab.file("c.yaml");
    std::fs::write(&config, format!("storage: {}/ledger.db\n", shared.display())).unwrap();
    let output = lab.run(&["--config", &config, "session", "ls"]);
    assert!(output.code == 1 && output.stderr.contains("can be written by others"), "{}", output.stderr);
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 0, "nothing was made there");
}

/// A data directory with other files in it keeps its mode; if others can write to it, it is refused.
#[test]
fn a_directory_with_foreign_files_is_not_closed() {
    let lab = Lab::new();
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("notes.txt"), "Buy seeds.").unwrap();
    let lab = lab.with_data(shared.path().to_owned());
    chmod(shared.path(), 0o755);
    lab.record("one", b"{}\n");
    assert_eq!((mode(shared.path()), mode(&shared.path().join("tapes"))), (0o755, 0o700));
    for open in [0o777, 0o1777, 0o775] {
        chmod(shared.path(), open);
        let output = refused(&lab, shared.path(), &["tape", "ls"]);
        assert!(output.stderr.contains("not there for Scrubjay alone"), "{}", output.stderr);
    }
}

#[test]
fn a_token_or_key_that_others_may_read_is_refused() {
    let lab = Lab::new();
    let token = lab.file("token");
    std::fs::write(&token, "a-token-of-good-length\n").unwrap();
    chmod(Path::new(&token), 0o644);
    for command in [
        &["serve", "--http", "127.0.0.1:0", "--auth-token-file", &token][..],
        &["wrap", "--listen", "127.0.0.1:0", "--auth-token-file", &token, "--", "cat"],
    ] {
        let output = refused(&lab, Path::new(&token), command);
        assert!(output.stderr.contains(&format!("chmod 600 {token}")), "{}", output.stderr);
        assert!(!output.stderr.contains("a-token-of"), "{}", output.stderr);
    }
    let config = lab.file("c.yaml");
    let keys =
        format!("keys: {{ main: {{ file: {token} }} }}, encryption: {{ enabled: true, key_id: main }}");
    std::fs::write(&config, format!("recorder: {{ privacy: {{ {keys} }} }}\n")).unwrap();
    for command in [&["wrap", "--", "cat"][..], &["serve"], &["redact"]] {
        let all = [&["--config", &config], command].concat();
        let output = refused(&lab, Path::new(&token), &all);
        assert!(output.stderr.contains(&format!("chmod 600 {token}")), "{command:?} {}", output.stderr);
    }
}

#[test]
fn a_configuration_that_others_may_write_is_refused() {
    let lab = Lab::new();
    let config = lab.file("c.yaml");
    std::fs::write(&config, "log_level: info\n").unwrap();
    chmod(Path::new(&config), 0o666);
    // Also by a command that needs nothing from it, because --data names the directory.
    let commands: [&[&str]; 6] = [
        &["wrap", "--", "cat"],
        &["serve"],
        &["config", "show"],
        &["tape", "ls"],
        &["tape", "rm", "abc", "--yes"],
        &["session", "ls"],
    ];
    for command in commands {
        let output = refused(&lab, Path::new(&config), &[&["--config", &config], command].concat());
        assert!(output.stderr.contains("others may write it (its mode is 0666)"), "{}", output.stderr);
    }
    // The file is closed but its directory is not, so others could replace it.
    chmod(Path::new(&config), 0o600);
    let open = tempfile::tempdir().unwrap();
    let moved = open.path().join("c.yaml");
    std::fs::rename(&config, &moved).unwrap();
    let moved = moved.to_str().unwrap();
    chmod(open.path(), 0o777);
    for command in commands {
        let output = refused(&lab, open.path(), &[&["--config", moved], command].concat());
        let words = format!("{} can be written by others (its mode is 0777)", open.path().display());
        assert!(output.stderr.contains(&words) && output.stderr.contains("chmod go-w"), "{}", output.stderr);
    }
    // As in /tmp (sticky bit), only the owner can replace it.
    for mode in [0o1777, 0o755] {
        chmod(open.path(), mode);
        assert_eq!(lab.run(&["--config", moved, "config", "show"]).code, 0);
    }
}

/// The mode of the file is right, but its owner is another user, who may change it at any time.
#[test]
#[ignore = "needs root"]
fn a_configuration_of_another_user_is_refused() {
    needs::root();
    let lab = Lab::new();
    let theirs = lab.file("theirs");
    let link = lab.file("link");
    symlink(&theirs, &link).unwrap();
    let check = |content: &str, commands: &[&[&str]]| {
        std::fs::write(&theirs, content).unwrap();
        chmod(Path::new(&theirs), 0o600);
        chown(&theirs, Some(STRANGER), None).unwrap();
        for command in commands {
            let output = refused(&lab, Path::new(&theirs), command);
            let words = format!("belongs to another user (uid {STRANGER})");
            assert!(output.stderr.contains(&words) && output.stderr.contains("chown 0"), "{}", output.stderr);
            let named = command.iter().any(|word| *word == theirs && output.stderr.contains(*word));
            assert!(named || output.stderr.contains(&link), "{}", output.stderr);
        }
    };
    check(
        "recorder: { enabled: false }\n",
        &[
            &["--config", &theirs, "wrap", "--", "cat"],
            &["--config", &link, "wrap", "--", "cat"],
            &["--config", &theirs, "serve"],
            &["--config", &theirs, "tape", "ls"],
        ],
    );
    check(
        "SCRUBJAY_RECORDER_ENABLED=false\n",
        &[&["--env-file", &theirs, "wrap", "--", "cat"], &["--env-file", &link, "config", "show"]],
    );
    check("a-token-of-good-length\n", &[&["serve", "--http", "127.0.0.1:0", "--auth-token-file", &theirs]]);
    check("x\n", &[&["tape", "checkpoint", "--key", &theirs]]);
}

#[test]
fn an_environment_file_that_others_may_write_is_refused() {
    let lab = Lab::new();
    let file = lab.file("env");
    std::fs::write(&file, "SCRUBJAY_LOG_LEVEL=debug\n").unwrap();
    chmod(Path::new(&file), 0o666);
    let output = refused(&lab, Path::new(&file), &["--env-file", &file, "wrap", "--", "cat"]);
    assert!(output.stderr.contains("others may write it (its mode is 0666)"), "{}", output.stderr);
    chmod(Path::new(&file), 0o644);
    assert_eq!(lab.run(&["--env-file", &file, "config", "show"]).code, 0);
}

/// A file with the ledger's name that is not a ledger is reported, and not touched.
#[test]
fn a_ledger_that_is_no_database_is_refused_and_not_changed() {
    let lab = lab_with_recording();
    let file = lab.data().join("ledger.db");
    std::fs::write(&file, "My shopping list, which is longer than a header.\n").unwrap();
    chmod(&file, 0o666);
    let output = refused(&lab, &file, &["session", "ls"]);
    assert!(!output.stderr.contains("its mode was"), "{}", output.stderr);
    assert!(output.stderr.contains("left as it is"), "{}", output.stderr);
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("My shopping list"));
    // Commands that do not need the ledger work; an empty file becomes the ledger.
    assert_eq!((lab.run(&["tape", "ls"]).code, mode(&file)), (0, 0o666));
    std::fs::write(&file, "").unwrap();
    assert_eq!((lab.run(&["session", "ls"]).code, mode(&file)), (0, 0o600));
}

/// A project file in the working directory cannot weaken a recorder, and the keys that would are named.
#[test]
fn an_untrusted_file_cannot_weaken_a_recorder_and_its_keys_are_named() {
    let lab = Lab::new();
    let project = tempfile::tempdir().unwrap();
    let theirs = "log_level: silent\non_record_failure: forward\ndurability: process\n\
                  limits: { max_message_size: 1KiB, max_tape_size: 1KiB, max_tape_duration: 1s }\n\
                  serve: { toolsets: [], naming: always, project: another }\nindex: { background: false }\n\
                  recorder: { enabled: false, capture: { errors: false }, privacy: { redact_sensitive: false } }\n";
    std::fs::write(project.path().join("scrubjay.yaml"), theirs).unwrap();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(SCRUBJAY);
        command.arg("--data").arg(lab.data()).args(arguments).current_dir(project.path());
        command.env("XDG_CONFIG_HOME", project.path().join("none")).env_remove("SCRUBJAY_DATA");
        command.env(BACKGROUND_VARIABLE, "false");
        Running::start(&mut command)
    };
    let keys = [
        "log_level",
        "on_record_failure",
        "durability",
        "limits.max_message_size",
        "limits.max_tape_size",
        "limits.max_tape_duration",
        "serve.toolsets",
        "serve.naming",
        "serve.project",
        "index.background",
        "recorder.enabled",
        "recorder.capture.errors",
        "recorder.privacy.redact_sensitive",
    ];
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{{"password":"hunter2-secret"}}}}"#,
        "x".repeat(3000)
    );
    let mut wrapped = start(&["wrap", "--", "cat"]);
    wrapped.send_line(&long);
    assert_eq!(wrapped.line().as_deref(), Some(long.as_str()));
    wrapped.close_stdin();
    assert_eq!(wrapped.exit_code(), 0);
    let stderr = wrapped.stderr_text();
    assert_eq!(lab.only_tape().of_kind("message").count(), 2);
    let tape = std::fs::read_dir(lab.data().join("tapes")).unwrap().next().unwrap().unwrap().path();
    assert!(!String::from_utf8_lossy(&std::fs::read(tape).unwrap()).contains("hunter2-secret"));
    let mut shown = start(&["config", "show"]);
    shown.close_stdin();
    assert_eq!(shown.exit_code(), 0);
    let shown = String::from_utf8(shown.rest()).unwrap();
    let mut served = start(&["serve"]);
    served.close_stdin();
    assert_eq!(served.exit_code(), 0);
    let logged = served.stderr_text();
    for key in keys {
        for (place, text) in [("wrap", &stderr), ("config show", &shown), ("serve", &logged)] {
            assert!(text.contains(key), "{place} does not name {key}: {text}");
        }
    }
    assert!(stderr.contains("scrubjay trust") && logged.contains("scrubjay trust"));
}
