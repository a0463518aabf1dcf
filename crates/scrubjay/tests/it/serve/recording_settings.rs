//! The configuration of recording has the same effect in the gateway as in `wrap`.

use serde_json::{Value, json};

use crate::harness::{Lab, Running, text};

const SCRUBJAY: &str = env!("CARGO_BIN_EXE_scrubjay");

fn start(lab: &Lab, config: &str) -> Running {
    let file = lab.file("config.yaml");
    std::fs::write(&file, config).unwrap();
    lab.start(&["--config", &file, "serve", "--toolsets", "none", "--", SCRUBJAY, "sample-server"])
}

fn greet(gateway: &mut Running) -> Value {
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } });
    gateway.ask(1, "initialize", &hello)
}

fn echo(gateway: &mut Running, id: u64, text_sent: &str) -> Value {
    gateway.ask(id, "tools/call", &json!({ "name": "echo", "arguments": { "text": text_sent } }))
}

#[test]
fn a_message_that_is_too_long_is_refused_and_noted() {
    let lab = Lab::new();
    let mut gateway = start(&lab, "limits: { max_message_size: 4KiB }\n");
    greet(&mut gateway);
    let refused = echo(&mut gateway, 2, &"x".repeat(5000));
    assert!(text(&refused["error"]["message"]).contains("4096"), "{refused}");
    assert_eq!(echo(&mut gateway, 3, "short")["result"]["content"][0]["text"], "short");
    gateway.close_stdin();
    assert_eq!(gateway.exit_code(), 0);
    let tapes = lab.tapes();
    let tape = tapes.iter().find(|tape| tape["name"] == "serve").unwrap();
    let recorded = lab.export(text(&tape["id"]));
    let noted: Vec<Value> = recorded.of_kind("oversize").map(|entry| entry.facts()).collect();
    assert_eq!(noted.len(), 1);
    assert!(noted[0]["bytes"].as_u64() > Some(5000), "{noted:?}");
}

#[test]
fn unrecordable_messages_are_forwarded_only_if_configured() {
    for (config, moves_on) in [("on_record_failure: stop\n", false), ("on_record_failure: forward\n", true)] {
        let lab = Lab::new();
        std::fs::create_dir(lab.data()).unwrap();
        // A file is where the directory of tapes should be.
        std::fs::write(lab.data().join("tapes"), "").unwrap();
        let mut gateway = start(&lab, config);
        let greeted = greet(&mut gateway);
        assert_eq!(greeted["result"].is_object(), moves_on, "{config}: {greeted}");
        if moves_on {
            assert_eq!(echo(&mut gateway, 2, "forwarded")["result"]["content"][0]["text"], "forwarded");
        } else {
            assert!(text(&greeted["error"]["message"]).contains("record"), "{greeted}");
        }
    }
}

#[test]
fn durability_power_excludes_async_storage() {
    let lab = Lab::new();
    let mut gateway = start(&lab, "durability: power\nrecorder: { performance: { async_storage: true } }\n");
    gateway.close_stdin();
    assert_ne!(gateway.exit_code(), 0);
    assert!(gateway.stderr_text().contains("async_storage"), "{}", gateway.stderr_text());
}
