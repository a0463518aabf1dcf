//! Names under lists that change at will.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::backend::list::ListItem;

fn listed(backend: &str, names: &[&str]) -> ListedBackend {
    let item = |name: &&str| ListItem { name: (*name).to_owned(), raw: format!(r#"{{"name":"{name}"}}"#) };
    let offer = BackendList::of(names.iter().map(item).collect());
    ListedBackend { backend: backend.into(), is_own: backend.starts_with("own"), offer: Arc::new(offer) }
}

fn name(listed: &[ListedBackend], given: &mut AssignedNames) -> (NameTable, Vec<String>) {
    let reserved = |name: &str| name == "orchestrate_task";
    let (table, named) = name_all(ListKind::Tools, listed, Naming::WhereNeeded, reserved, given);
    (table, named.into_iter().map(|named| named.name).collect())
}

fn owner(table: &NameTable, name: &str) -> String {
    table.owner(name).map(|o| format!("{}/{}", o.backend, o.own)).unwrap_or_default()
}

#[test]
fn names_are_prefixed_where_two_backends_collide() {
    let mut given = AssignedNames::default();
    let (table, names) =
        name(&[listed("a", &["x", "y"]), listed("b", &["x", "orchestrate_task"])], &mut given);
    assert_eq!(names, ["a__x", "y", "b__x", "b__orchestrate_task"]);
    for (name, expected) in [("a__x", "a/x"), ("y", "a/y"), ("a__y", "a/y"), ("b__x", "b/x"), ("x", "")] {
        assert_eq!(owner(&table, name), expected, "{name}");
    }
}

#[test]
fn a_name_stays_with_its_owner_as_backends_come_and_go() {
    let mut given = AssignedNames::default();
    assert_eq!(name(&[listed("b", &["x"])], &mut given).1, ["x"]);
    // Another comes: the first keeps what it has.
    let (table, names) = name(&[listed("a", &["x"]), listed("b", &["x"])], &mut given);
    assert_eq!(names, ["a__x", "x"]);
    assert_eq!(owner(&table, "x"), "b/x");
    // The first goes: its name does not pass to the other.
    let (table, names) = name(&[listed("a", &["x"])], &mut given);
    assert_eq!(names, ["a__x"]);
    assert_eq!(owner(&table, "x"), "");
    assert_eq!(given.owner("x").map(|o| &*o.backend), Some("b"));
}

#[test]
fn a_tool_named_like_the_long_form_of_another_takes_nothing_from_it() {
    let mut given = AssignedNames::default();
    let (table, names) =
        name(&[listed("a", &["x"]), listed("b", &["x"]), listed("c", &["a__x"])], &mut given);
    assert_eq!(names, ["a__x", "b__x", "c__a__x"]);
    assert_eq!((owner(&table, "a__x"), owner(&table, "c__a__x")), ("a/x".to_owned(), "c/a__x".to_owned()));
}

#[test]
fn only_so_many_names_of_a_backend_are_remembered_and_none_of_another_is_forgotten_for_them() {
    let mut given = AssignedNames::default();
    let (long, flood) = ("x".repeat(1000), |round: usize| -> Vec<String> {
        (0..100).map(|n| format!("{round}_{n}_{}", "x".repeat(1000))).collect()
    });
    assert_eq!(name(&[listed("a", &["read"])], &mut given).1, ["read"]);
    for round in 0..20 {
        let names = flood(round);
        let names: Vec<&str> = names.iter().map(String::as_str).chain(["read"]).collect();
        assert_eq!(name(&[listed("b", &names)], &mut given).1.last().map(String::as_str), Some("b__read"));
        assert!(given.bytes.values().sum::<usize>() <= 2 * GIVEN_BYTES_MAX);
        assert!(given.by_owner.len() < 1000, "{}", given.by_owner.len());
    }
    // One list that alone is too much.
    let names: Vec<String> = (0..10_000).map(|n| format!("{n}_{long}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (table, named) = name(&[listed("a", &["read"]), listed("b", &names)], &mut given);
    assert_eq!((named.len(), table.owner(names[0]).is_some()), (10_001, true), "all can be called");
    assert_eq!((given.by_owner.len(), given.by_name.len()), (1, 2));
    assert_eq!(given.owner("read").map(|owned| &*owned.backend), Some("a"));
}

#[test]
fn toolsets_of_this_process_keep_their_names() {
    let mut given = AssignedNames::default();
    let (_, names) = name(&[listed("a", &["file_op"]), listed("own", &["file_op"])], &mut given);
    assert_eq!(names, ["a__file_op", "file_op"]);
}

#[test]
fn the_first_of_two_resources_with_one_uri_is_listed() {
    let (table, named) = name_all(
        ListKind::Resources,
        &[listed("a", &["u", "u"]), listed("b", &["u", "v"])],
        Naming::WhereNeeded,
        |_| false,
        &mut AssignedNames::default(),
    );
    let owners: Vec<String> = named.iter().map(|n| format!("{}/{}", n.owned.backend, n.name)).collect();
    assert_eq!(owners, ["a/u", "b/v"]);
    assert_eq!(owner(&table, "u"), "a/u");
}

proptest! {
    /// Backends list anything and come, go and change in any order: a listed name leads to the backend
    /// and the tool that it was listed for, now and in every later list.
    #[test]
    fn a_name_never_leads_elsewhere(
        history in prop::collection::vec(
            prop::collection::btree_map("a|b|c|own|a__b", prop::collection::vec("x|y|b__x|a__x|a__b__x|b__b__x", 0..5), 0..5),
            1..12,
        ),
        always in any::<bool>(),
    ) {
        let mut given = AssignedNames::default();
        let mut ever: HashMap<String, OwnedName> = HashMap::new();
        let naming = if always { Naming::Always } else { Naming::WhereNeeded };
        for state in history {
            let lists: Vec<ListedBackend> = state
                .iter()
                .map(|(backend, names)| listed(backend, &names.iter().map(String::as_str).collect::<Vec<_>>()))
                .collect();
            let (table, named) = name_all(ListKind::Tools, &lists, naming, |name| name == "y", &mut given);
            let mut seen = HashSet::new();
            for one in &named {
                prop_assert!(seen.insert(one.name.clone()), "{} is listed twice", one.name);
                prop_assert_eq!(table.owner(&one.name), Some(&one.owned));
                let said: serde_json::Value = serde_json::from_str(&one.raw).unwrap();
                prop_assert_eq!(said["name"].as_str(), Some(one.name.as_str()));
                prop_assert!(one.name != "y", "a reserved name is given away");
            }
            // Everything listed can be called, and nothing leads to a backend that does not list it.
            let all: HashSet<OwnedName> = lists
                .iter()
                .flat_map(|l| l.offer.items.iter().map(|i| OwnedName { backend: l.backend.clone(), own: i.name.clone() }))
                .collect();
            prop_assert_eq!(named.len(), all.len());
            for (name, owned) in table.names() {
                prop_assert!(all.contains(owned), "{name} leads to what nobody lists");
                let before = ever.entry(name.to_owned()).or_insert_with(|| owned.clone());
                prop_assert_eq!(&*before, owned, "{} means another tool than before", name);
            }
        }
    }
}
