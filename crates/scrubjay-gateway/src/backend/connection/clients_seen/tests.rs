//! Once two clients have spoken on a connection, what names no call belongs to neither of them.

use super::*;
use crate::gateway::stage::Stage;

#[tokio::test]
async fn a_connection_is_one_clients_until_another_speaks_on_it_and_never_again() {
    let stage = Stage::new(&[]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let mut seen = ClientsSeen::default();
    assert!(seen.is_nobody_but(&alice) && seen.is_nobody_but(&bob), "nobody has spoken");
    seen.add(&alice);
    seen.add(&alice);
    assert!(seen.is_nobody_but(&alice) && !seen.is_nobody_but(&bob));
    seen.add(&bob);
    assert_eq!(seen, ClientsSeen::Several);
    seen.add(&alice);
    assert!(!seen.is_nobody_but(&alice) && !seen.is_nobody_but(&bob), "bob may have left meanwhile");
}

#[tokio::test]
async fn sessions_of_one_inferred_client_are_one_client() {
    let stage = Stage::new(&[]);
    let open = |client| stage.gateway.open_inferred_session("trace", client);
    let mut seen = ClientsSeen::default();
    seen.add(&open("alice"));
    assert!(seen.is_nobody_but(&open("alice")) && !seen.is_nobody_but(&open("bob")));
}

#[tokio::test]
async fn clients_that_cannot_be_told_apart_are_several_from_the_beginning() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_ambiguous_session("several", "one token");
    let mut seen = ClientsSeen::default();
    assert!(!seen.is_nobody_but(&session));
    seen.add(&session);
    assert_eq!(seen, ClientsSeen::Several);
}
