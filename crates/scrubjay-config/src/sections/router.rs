//! `router`: how a task in plain words becomes a call.

use std::sync::Arc;

use scrubjay_core::glob::Glob;
use scrubjay_gateway::gateway::Consent;
use scrubjay_router::{Router, SHORTLIST_MAX, ToolPresentation};

use crate::loaded::Loaded;
use crate::section::section;
use crate::setting::{Count, List, ListItem, Share, WrongValue, choice};

section! {
    /// `router`.
    struct RouterSection {
        mode: RouterMode = "catalog";
        threshold: Share = "0.5";
        confirm_destructive: bool = "true";
        destructive: List<CallPattern> = "[]";
        allowed: List<CallPattern> = "[]";
        max_steps: Count<1, 10> = "1";
        shortlist: Count<1, { SHORTLIST_MAX as u64 }> = "10", free;
        learn: bool = "true";
    }
}

// How tools are presented to a model; `off` routes no task.
choice!(enum RouterMode: "catalog" = Catalog, "backends" = Backends, "off" = Off);

/// A pattern of calls: `backend/tool`.
pub(crate) struct CallPattern;

impl ListItem for CallPattern {
    type Value = Glob;

    fn read(pattern: &str) -> Result<Glob, WrongValue> {
        // Calls are compared as `backend/tool`, so a pattern without a backend is a mistake.
        if pattern.find('/').is_none_or(|at| at == 0) {
            return Err("must be a call like files/delete_file or files/*".into());
        }
        Glob::parse(pattern).map_err(WrongValue::new)
    }
}

impl Loaded {
    /// Returns the router and the calls that need a person's consent; `None` if no task is routed.
    pub fn router(&self) -> Option<(Arc<Router>, Consent)> {
        let router = &self.settings.router;
        let mode = match router.mode {
            RouterMode::Catalog => ToolPresentation::Catalog,
            RouterMode::Backends => ToolPresentation::Backends,
            RouterMode::Off => return None,
        };
        let consent = Consent {
            confirm_destructive: router.confirm_destructive,
            destructive: router.destructive.clone(),
            allowed: router.allowed.clone(),
        };
        let made = Router::new(mode, router.threshold as f32)
            .with_steps(router.max_steps)
            .with_shortlist(router.shortlist);
        Some((Arc::new(made), consent))
    }

    /// Tells whether the router learns from earlier tasks.
    pub fn router_learns(&self) -> bool {
        self.settings.router.learn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_problems, loaded};

    #[test]
    fn the_section_is_read() {
        let read = |text: &str| loaded(text).router();
        let (router, consent) = read("{}").unwrap();
        assert_eq!((router.mode(), router.threshold()), (ToolPresentation::Catalog, 0.5));
        assert!(consent.confirm_destructive && consent.allowed.is_empty());
        assert_eq!(router.shortlist(), 10);
        assert_eq!(read("router: { shortlist: 15 }").unwrap().0.shortlist(), 15);
        let text = "router: { mode: backends, threshold: 0.25, destructive: ['web/*'], allowed: [a/b] }";
        let (router, consent) = read(text).unwrap();
        assert_eq!((router.mode(), router.threshold()), (ToolPresentation::Backends, 0.25));
        assert_eq!(
            (consent.destructive, consent.allowed),
            (vec![Glob::new("web/*")], vec![Glob::new("a/b")])
        );
        assert!(read("router: { mode: off }").is_none());
    }

    #[test]
    fn wrong_values_are_reported() {
        check_problems(
            "router: { mode: maybe, threshold: 2, allowed: [delete, 'a?/b', /x, '*/b'] }",
            &[
                ":1: router.mode must be catalog, backends or off, not \"maybe\"",
                ":1: router.threshold must be a number from 0 to 1, not \"2\"",
                ":1: router.allowed[0] must be a call like files/delete_file or files/*",
                ":1: router.allowed[1] is not a pattern: it holds '?', and the only wildcard is *",
                ":1: router.allowed[2] must be a call like files/delete_file or files/*",
            ],
        );
        check_problems(
            "router: { shortlist: 16, learn: maybe }",
            &[
                ":1: router.shortlist must be a whole number from 1 to 15, not \"16\"",
                ":1: router.learn must be true or false, not \"maybe\"",
            ],
        );
    }
}
