//! The `router` section: the types of its keys, and what they mean together.

use std::sync::Arc;

use scrubjay_gateway::gateway::Consent;
use scrubjay_router::{Mode, Router};
use serde_json::json;

use super::node::{Node, Origin};
use super::problem::Problem;
use super::raw::RawRouter;
use super::resolve::taken;
use super::setting::{Choice, Setting, Shown, list, parse};

/// How tools are put before a model, or that no task is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterMode {
    Catalog,
    Backends,
    Off,
}

impl Choice for RouterMode {
    const NAMES: &'static [(&'static str, Self)] =
        &[("catalog", Self::Catalog), ("backends", Self::Backends), ("off", Self::Off)];
}

/// A part of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f32);

impl Setting for Share {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        parse(node, key, problems, "a number from 0 to 1", |text| {
            text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).map(Self)
        })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        // As it is spelled: the nearest number of twice the width has more digits.
        let value: serde_json::Value = serde_json::from_str(&self.0.to_string()).unwrap_or_default();
        out.push(Shown::new(key, value, origin));
    }
}

/// Names of calls: `backend/tool`, which may end in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calls(pub Vec<String>);

impl Setting for Calls {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let fits = |name: &str| {
            let start = name.strip_suffix('*').unwrap_or(name);
            !start.contains('*') && start.split_once('/').is_some_and(|(backend, _)| !backend.is_empty())
        };
        list(node, key, problems, "a call like files/delete_file or files/*", fits).map(Self)
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, json!(self.0), origin));
    }
}

impl RawRouter {
    /// Returns what routes tasks and what needs a yes; none where no task is routed.
    pub(crate) fn resolve(&self) -> Option<(Arc<Router>, Consent)> {
        let mode = match taken(self.mode.as_ref()) {
            RouterMode::Catalog => Mode::Catalog,
            RouterMode::Backends => Mode::Backends,
            RouterMode::Off => return None,
        };
        let consent = Consent {
            confirm_destructive: taken(self.confirm_destructive.as_ref()),
            destructive: taken(self.destructive.as_ref()).0,
            allowed: taken(self.allowed.as_ref()).0,
        };
        let steps_max =
            usize::try_from(taken(self.max_steps.as_ref()).0).expect("the key's range ends at 10");
        let shortlist =
            usize::try_from(taken(self.shortlist.as_ref()).0).expect("the key's range ends at 15");
        let router = Router::new(mode, taken(self.threshold.as_ref()).0)
            .with_steps(steps_max)
            .with_shortlist(shortlist);
        Some((Arc::new(router), consent))
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw::RawConfig;
    use super::super::yaml;
    use super::*;

    fn read(text: &str) -> Result<Option<(Arc<Router>, Consent)>, Vec<String>> {
        let mut problems = Vec::new();
        let tree = yaml::parse(text, std::path::Path::new("c.yaml"), &mut problems).unwrap();
        let raw = RawConfig::read_tree(&tree, &mut problems);
        let told = problems.iter().map(|p| format!("{} {}", p.key, p.message)).collect::<Vec<_>>();
        let resolved = RawConfig::defaults().under_layer(raw).router.resolve();
        if told.is_empty() { Ok(resolved) } else { Err(told) }
    }

    #[test]
    fn the_section_is_read() {
        let (router, consent) = read("{}").unwrap().unwrap();
        assert_eq!((router.mode(), router.threshold()), (Mode::Catalog, 0.5));
        assert!(consent.confirm_destructive && consent.allowed.is_empty());
        assert_eq!(router.shortlist(), 10);
        assert_eq!(read("router: { shortlist: 15 }").unwrap().unwrap().0.shortlist(), 15);
        let text = "router: { mode: backends, threshold: 0.25, destructive: ['web/*'], allowed: [a/b] }";
        let (router, consent) = read(text).unwrap().unwrap();
        assert_eq!((router.mode(), router.threshold()), (Mode::Backends, 0.25));
        assert_eq!(
            (consent.destructive, consent.allowed),
            (vec!["web/*".to_owned()], vec!["a/b".to_owned()])
        );
        assert!(read("router: { mode: off }").unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let told =
            read("router: { mode: maybe, threshold: 2, allowed: [delete, 'a*/b', /x] }").err().unwrap();
        let expected = [
            "router.mode must be catalog, backends or off, not \"maybe\"",
            "router.threshold must be a number from 0 to 1, not \"2\"",
            "router.allowed[0] must be a call like files/delete_file or files/*",
            "router.allowed[1] must be a call like files/delete_file or files/*",
            "router.allowed[2] must be a call like files/delete_file or files/*",
        ];
        assert_eq!(told, expected);
        let told = read("router: { shortlist: 16, learn: maybe }").err().unwrap();
        let expected = [
            "router.shortlist must be a whole number from 1 to 15, not \"16\"",
            "router.learn must be true or false, not \"maybe\"",
        ];
        assert_eq!(told, expected);
    }
}
