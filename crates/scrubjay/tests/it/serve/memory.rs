//! Attacks on the gateway's memory and connections: the peak, the calls of other clients meanwhile, and the notes on tape.
//!
//! The attacks are in `tests/bombs`, which also runs them at full size; here the configuration lowers the limits,
//! and the attacks are smaller accordingly.

use std::process::Command;

use super::rig::{repository, text};

fn survives(bomb: &str) {
    let script = repository().join("tests/bombs/bombs");
    let output = Command::new("python3")
        .args(["-B", &text(&script), env!("CARGO_BIN_EXE_scrubjay"), "--small", bomb])
        .output()
        .expect("python3 starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("peak"), "{stdout}\n{stderr}");
}

#[test]
fn memory_is_bounded_with_paused_readers_of_many_notifications() {
    survives("paused_readers");
}

#[test]
fn memory_is_bounded_with_megabytes_of_client_info() {
    survives("client_facts");
}

#[test]
fn memory_is_bounded_with_huge_log_levels_and_subscriptions() {
    survives("names");
}

#[test]
fn memory_is_bounded_with_incomplete_bodies() {
    survives("half_bodies");
}

#[test]
fn memory_is_bounded_with_a_backend_that_does_not_read() {
    survives("deaf_backend");
}

#[test]
fn memory_is_bounded_with_backends_that_flood_paused_clients() {
    survives("backend_flood");
}

#[test]
fn memory_is_bounded_with_large_unread_answers() {
    survives("large_answers");
}

#[test]
fn memory_is_bounded_with_ids_and_methods_of_megabytes() {
    survives("long_ids");
}

#[test]
fn memory_is_bounded_with_many_resource_subscriptions() {
    survives("many_subscriptions");
}

#[test]
fn memory_is_bounded_with_large_headers_of_open_calls() {
    survives("heads_of_calls");
}

#[test]
fn memory_is_bounded_with_large_parked_calls() {
    survives("parked_calls");
}

#[test]
fn memory_is_bounded_with_deep_and_wide_batches() {
    survives("batches");
}

#[test]
fn memory_is_bounded_with_headers_that_arrive_slowly() {
    survives("headers_flood");
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    survives("connections");
}

#[test]
fn memory_is_bounded_with_short_lived_clients_of_wrap_listen() {
    survives("wrapped_clients");
}

#[test]
fn memory_is_bounded_with_different_tools_for_every_client() {
    survives("much_of_tools");
}

#[test]
fn memory_is_bounded_with_simultaneous_requests_for_long_lists() {
    survives("lists_at_once");
}

#[test]
fn memory_is_bounded_with_different_resources_for_every_client() {
    survives("much_of_resources");
}

#[test]
fn memory_is_bounded_with_thousands_of_different_names_for_every_client() {
    survives("much_of_names");
}

#[test]
fn memory_is_bounded_with_instructions_of_megabytes() {
    survives("much_of_instructions");
}

#[test]
fn memory_is_bounded_with_capabilities_of_megabytes() {
    survives("much_of_capabilities");
}
