//! A gateway whose disk is full for a while, and one whose files may not grow.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{BACKGROUND_VARIABLE, Lab, Running, SCRUBJAY};
use crate::storage::SmallDisk;

/// Starts a gateway with its ledger here, from a shell that runs a script first.
fn serve(lab: &Lab, ledger: &Path, first: &str) -> Running {
    let workspace = lab.file("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{first}\nexec \"$0\" \"$@\""), SCRUBJAY, "--data"]).arg(lab.data());
    command.args(["serve", "--project", "birds", "--toolsets", "recorder,progress,tapes,sample"]);
    command.args(["--workspace", &workspace]).env("HOME", lab.file("")).env_remove("CLAUDE_CODE_SESSION_ID");
    command.env("SCRUBJAY_STORAGE", ledger);
    command.env(BACKGROUND_VARIABLE, "false").current_dir(&workspace);
    let mut gateway = Running::start(&mut command);
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "faults", "version": "1" } });
    assert!(gateway.ask(0, "initialize", &hello)["result"].is_object());
    gateway.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    gateway
}

/// Calls a tool; returns whether it succeeded.
fn call(gateway: &mut Running, id: u64, tool: &str, arguments: &Value) -> Result<Value, Value> {
    let answer = gateway.ask(id, "tools/call", &json!({ "name": tool, "arguments": arguments }));
    let is_well = answer["error"].is_null() && answer["result"]["isError"] != true;
    if is_well { Ok(answer["result"]["structuredContent"].clone()) } else { Err(answer) }
}

fn change(gateway: &mut Running, id: u64, length: usize) -> Result<Value, Value> {
    let content = format!("{id}").repeat(length);
    call(
        gateway,
        id,
        "file_op",
        &json!({ "path": format!("{id}.txt"), "action": "create", "content": content }),
    )
}

/// Checks that every tool works; its requests use the ids from this one on.
fn everything_works(gateway: &mut Running, id: u64) {
    change(gateway, id, 100).unwrap();
    let entry = json!({ "projectId": "birds", "title": format!("t{id}"), "content": "c" });
    call(gateway, id + 1, "log_progress", &entry).unwrap();
    call(gateway, id + 2, "echo", &json!({ "text": format!("needle{id}") })).unwrap();
    let found = call(gateway, id + 3, "search_tapes", &json!({ "query": format!("needle{id}") })).unwrap();
    assert_eq!(found["total"], 1, "{found}");
}

/// Fills a disk and frees it again, several times, while one gateway runs.
fn check(disk: &SmallDisk, lab: &Lab, ledger: &Path) {
    let mut gateway = serve(lab, ledger, "");
    for round in 0..3 {
        let id = 1 + round * 100;
        everything_works(&mut gateway, id);
        disk.fill();
        let mut failed = 0;
        for more in 10..20 {
            failed += u64::from(change(&mut gateway, id + more, 20_000).is_err());
        }
        assert!(failed > 0, "the disk was not full");
        disk.clear();
        everything_works(&mut gateway, id + 50);
    }
    gateway.close_stdin();
    assert_eq!(gateway.exit_code(), 0, "{}", gateway.stderr_text());
    lab.verify();
}

#[test]
#[ignore = "needs root"]
fn a_gateway_works_again_after_its_disk_was_full() {
    let disk = SmallDisk::mount_of("12m");
    let lab = disk.lab();
    check(&disk, &lab, &lab.data().join("ledger.db"));
}

#[test]
#[ignore = "needs root"]
fn a_ledger_works_again_after_its_disk_was_full() {
    let disk = SmallDisk::mount_of("12m");
    let ledger = disk.lab().data().with_file_name("ledger.db");
    check(&disk, &Lab::new(), &ledger);
}

#[test]
fn a_file_size_limit_refuses_only_the_large_file() {
    let lab = Lab::new();
    // In blocks of 512 bytes: enough for the ledger, not for what is asked for below.
    let mut gateway = serve(&lab, &lab.data().join("ledger.db"), "ulimit -f 8192");
    everything_works(&mut gateway, 1);
    let failure = change(&mut gateway, 10, 5_000_000).unwrap_err();
    assert!(failure.to_string().len() < 10_000, "{failure}");
    everything_works(&mut gateway, 20);
    gateway.close_stdin();
    assert_eq!(gateway.exit_code(), 0, "{}", gateway.stderr_text());
    lab.verify();
}
