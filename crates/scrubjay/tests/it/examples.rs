//! The configurations in `examples/` can be used without changes, and each changes a default.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{Lab, SCRUBJAY};

#[test]
fn every_example_configuration_is_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let lab = Lab::new();
    // One of them names a file with tokens in the same directory.
    let tokens = lab.file("tokens");
    std::fs::write(&tokens, "anna: a-token-that-is-long-enough\n").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut count = 0;
    for example in std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()) {
        let name = example.file_name().unwrap().to_str().unwrap().to_owned();
        let file = lab.file(&name);
        std::fs::copy(&example, &file).unwrap();
        let mut show = Command::new(SCRUBJAY);
        show.arg("--data").arg(lab.data()).args(["--config", &file, "--json", "config", "show"]);
        let shown = show.env("TICKETS_TOKEN", "t").env("DATABASE_PASSWORD", "p").output().unwrap();
        let stderr = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success() && stderr.is_empty(), "{name}: {stderr}");
        assert!(String::from_utf8_lossy(&shown.stdout).contains(&name), "{name} sets nothing");
        count += 1;
    }
    assert!(count >= 4, "{count} examples");
}
