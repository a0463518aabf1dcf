//! No recorded text can control the terminal of the person who shows it.

use std::process::Command;

use crate::harness::{BACKGROUND_VARIABLE, Lab, Running, SCRUBJAY, UP, text};

/// Characters that control a terminal: ESC, CSI and OSC as C1 characters, bell, carriage return, delete, hidden ones.
const EVIL: &str = "\u{1b}[31m\u{9b}2J\u{9d}0;title\u{7}\u{8}\r\u{7f}\u{202e}\u{200b}";

/// The same as JSON escapes: harmless in the message, and dangerous once a program decodes them.
const ESCAPED: &str = r"\u001b[31m\u009b2J\u009d0;title\u0007\b\r\u007f\u202e\u200b";

fn evil_lines() -> Vec<u8> {
    let mut lines = Vec::new();
    for evil in [EVIL, ESCAPED] {
        lines.extend(
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"{evil}\",\"method\":\"tools/call\",\"params\":{{\"name\":\"{evil}\"}}}}\n\
                 {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m{evil}\"}}\n\
                 {{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":-1,\"message\":\"{evil}\"}}}}\n\
                 {{\"jsonrpc\":\"2.0\",\"id\":\"x{evil}\",\"result\":{{\"{evil}\":\"{evil}\"}}}}\n\
                 {evil}\n"
            )
            .bytes(),
        );
    }
    // Raw bytes that are C1 codes for a terminal that is not in UTF-8.
    lines.extend(b"\x9b31m \x9d0;title\x07 \x84\n");
    lines
}

fn assert_harmless(what: &[&str], output: &[u8]) {
    let output = std::str::from_utf8(output).unwrap_or_else(|e| panic!("{what:?}: {e}"));
    let evil: Vec<char> = output
        .chars()
        .filter(|c| (c.is_control() && *c != '\n') || matches!(c, '\u{202e}' | '\u{200b}'))
        .collect();
    assert!(evil.is_empty(), "{what:?} let {evil:?} through: {}", output.escape_debug());
}

#[test]
fn recorded_text_cannot_control_a_terminal() {
    let lab = Lab::new();
    let script = format!("printf '%s\\n' '{EVIL}' >&2; exec cat");
    let mut wrapped = lab.wrap(&["sh", "-c", &script]).with(&["--name", EVIL]).start();
    wrapped.send(&evil_lines());
    assert_eq!(wrapped.leave(), 0);
    let id = text(&lab.tapes()[0]["id"]).to_owned();
    let recorded = lab.export(&id);
    assert_eq!(recorded.wire(UP), evil_lines(), "harmless to look at, and the same when read");
    let entries = recorded.entries.len();
    let mut commands: Vec<Vec<String>> =
        ["ls", "show", "verify", "export"].map(|verb| vec![verb.to_owned()]).into();
    commands.push(vec!["follow".to_owned(), id.clone()]);
    commands.extend((0..entries).map(|n| vec!["show".to_owned(), "--entry".to_owned(), n.to_string()]));
    for command in commands {
        for json in [false, true] {
            let mut arguments = vec!["tape"];
            arguments.extend(command.iter().map(String::as_str));
            arguments.extend(json.then_some("--json"));
            let output = lab.run(&arguments);
            assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
            assert_harmless(&arguments, &output.stdout);
            assert_harmless(&arguments, output.stderr.as_bytes());
        }
    }
}

#[test]
fn names_in_errors_cannot_control_a_terminal() {
    let lab = Lab::new();
    lab.record("n", b"x\n");
    let output = lab.run_failing(&["tape", "show", EVIL]);
    assert_harmless(&["tape", "show"], output.as_bytes());
    let output = lab.run_failing(&["tape", "import", EVIL]);
    assert_harmless(&["tape", "import"], output.as_bytes());
}

/// The notice about an untrusted project file prints its name and keys, which may contain control characters.
#[test]
fn the_notice_about_an_untrusted_file_cannot_control_a_terminal() {
    let lab = Lab::new();
    let place = tempfile::tempdir().unwrap();
    let project = place.path().join(format!("p{EVIL}"));
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("scrubjay.yaml"), format!("\"{}\": 1\n", ESCAPED.replace("\\b", "\\x08")))
        .unwrap();
    let commands: [&[&str]; 7] = [
        &["wrap", "--", "true"],
        &["wrap", "--listen", "127.0.0.1:0", "--name", EVIL, "--url", "nowhere"],
        &["serve"],
        &["config", "show"],
        &["doctor"],
        &["trust", "--yes"],
        &["tape", "ls"],
    ];
    for arguments in commands {
        let mut command = Command::new(SCRUBJAY);
        command.arg("--data").arg(lab.data()).args(arguments).current_dir(&project);
        command.env("XDG_CONFIG_HOME", place.path().join("none")).env(BACKGROUND_VARIABLE, "false");
        let mut run = Running::start(&mut command);
        run.close_stdin();
        run.exit_code();
        let output = run.stderr_text();
        assert_harmless(arguments, output.as_bytes());
        assert!(output.contains("is not used") || !arguments.starts_with(&["wrap", "--"]), "{output}");
    }
}
