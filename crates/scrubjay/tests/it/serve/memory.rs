//! Attacks on the gateway's memory and connections: its peak, who else is served meanwhile, and what is on tape.
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
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("peak"), "{said}\n{complained}");
}

#[test]
fn clients_that_do_not_read_while_a_backend_says_much_to_all() {
    survives("paused_readers");
}

#[test]
fn clients_that_say_megabytes_of_themselves() {
    survives("client_facts");
}

#[test]
fn log_levels_and_subscriptions_with_huge_names() {
    survives("names");
}

#[test]
fn bodies_that_are_sent_by_half() {
    survives("half_bodies");
}

#[test]
fn a_backend_that_does_not_read() {
    survives("deaf_backend");
}

#[test]
fn backends_that_flood_clients_which_do_not_read() {
    survives("backend_flood");
}

#[test]
fn large_answers_that_nobody_reads() {
    survives("large_answers");
}

#[test]
fn ids_and_methods_of_megabytes() {
    survives("long_ids");
}

#[test]
fn clients_that_listen_for_more_resources_than_there_are() {
    survives("many_subscriptions");
}

#[test]
fn headers_of_calls_under_way() {
    survives("heads_of_calls");
}

#[test]
fn parked_calls_with_much_to_keep() {
    survives("parked_calls");
}

#[test]
fn batches_deep_and_wide() {
    survives("batches");
}

#[test]
fn headers_that_dribble() {
    survives("headers_flood");
}

#[test]
fn more_connections_than_places() {
    survives("connections");
}

#[test]
fn clients_of_wrap_listen_that_come_and_go() {
    survives("wrapped_clients");
}

#[test]
fn lists_of_tools_that_are_another_for_every_client() {
    survives("much_of_tools");
}

#[test]
fn long_lists_that_all_ask_for_at_once() {
    survives("lists_at_once");
}

#[test]
fn lists_of_resources_that_are_another_for_every_client() {
    survives("much_of_resources");
}

#[test]
fn thousands_of_names_that_are_others_for_every_client() {
    survives("much_of_names");
}

#[test]
fn instructions_of_megabytes() {
    survives("much_of_instructions");
}

#[test]
fn capabilities_of_megabytes() {
    survives("much_of_capabilities");
}
