//! Which backend a resource belongs to: by its list, by its templates, or because no other could have it.

use std::sync::Arc;

use super::Gateway;
use super::aggregate::known_table;
use super::names::NameTable;
use crate::backend::Backend;
use crate::backend::list::ListKind;
use crate::session::Call;

impl Gateway {
    /// Finds the backend of a resource: by its list, its templates, or because it is the only one.
    pub(super) async fn owner_of_uri(self: &Arc<Self>, call: &Arc<Call>, uri: &str) -> Option<Arc<Backend>> {
        if let Ok((backend, _)) = self.owner(call, ListKind::Resources, uri).await {
            return Some(backend);
        }
        let known = known_table(&call.session, ListKind::Templates);
        let mut fitting = known.and_then(|table| self.fitting_template(&table, uri));
        if fitting.is_none() {
            let table = self.aggregate(call, ListKind::Templates).await.table;
            fitting = self.fitting_template(&table, uri);
        }
        if fitting.is_some() {
            return fitting;
        }
        let mut able = Vec::new();
        for backend in self.backends().iter() {
            if let Some(connection) = backend.open_connection(&call.session, call.facts.era)
                && connection.offers("resources")
            {
                able.push(backend.clone());
            }
        }
        // Unlisted, but nobody else could have it.
        if able.len() == 1 { able.pop() } else { None }
    }

    fn fitting_template(&self, table: &NameTable, uri: &str) -> Option<Arc<Backend>> {
        most_specific(self.templates(table), uri)
    }
}

/// Returns what stands with the template that fits a URI; of several, the one with the longest fixed part.
fn most_specific<T>(mut templates: Vec<(String, T)>, uri: &str) -> Option<T> {
    templates.sort_by_key(|(template, _)| std::cmp::Reverse(fixed_part(template).len()));
    templates.into_iter().find(|(template, _)| uri.starts_with(fixed_part(template))).map(|(_, one)| one)
}

fn fixed_part(template: &str) -> &str {
    template.split('{').next().unwrap_or(template)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::gateway::stage::Stage;

    #[test]
    fn of_several_templates_that_fit_the_most_specific_counts() {
        let templates = || {
            [
                ("file:///{path}", 1),
                ("file:///logs/{day}", 2),
                ("db://{table}/{row}", 3),
                ("file:///exact", 4),
            ]
            .map(|(template, owner)| (template.to_owned(), owner))
            .to_vec()
        };
        let check = |uri, owner| assert_eq!(most_specific(templates(), uri), owner, "{uri}");
        check("file:///notes/a", Some(1));
        check("file:///logs/today", Some(2));
        check("db://users/7", Some(3));
        check("file:///exact", Some(4));
        check("https://example.org", None);
        assert_eq!(most_specific::<u8>(Vec::new(), "file:///a"), None);
    }

    fn notes(method: &str, _: &Value) -> Option<Value> {
        match method {
            "resources/list" => Some(json!({ "resources": [{ "name": "n", "uri": "note:///listed" }] })),
            "resources/templates/list" => {
                Some(json!({ "resourceTemplates": [{ "name": "t", "uriTemplate": "note:///{id}" }] }))
            }
            "resources/read" => Some(json!({ "contents": [{ "uri": "x", "text": "notes" }] })),
            _ => None,
        }
    }

    fn others(method: &str, _: &Value) -> Option<Value> {
        match method {
            "resources/list" => Some(json!({ "resources": [{ "name": "o", "uri": "other:///listed" }] })),
            "resources/templates/list" => Some(json!({ "resourceTemplates": [] })),
            "resources/read" => Some(json!({ "contents": [{ "uri": "x", "text": "others" }] })),
            _ => None,
        }
    }

    async fn read(stage: &Stage, uri: &str) -> Option<String> {
        let session = stage.gateway.open_session("a client");
        let request = stage.legacy(&session, "resources/read", &json!({ "uri": uri }));
        let answer = stage.answer(request).await;
        answer["result"]["contents"][0]["text"].as_str().map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn a_resource_is_read_from_the_backend_that_lists_it_or_has_its_template() {
        let stage = Stage::new(&[("notes", notes), ("others", others)]);
        assert_eq!(read(&stage, "note:///listed").await.as_deref(), Some("notes"));
        assert_eq!(read(&stage, "other:///listed").await.as_deref(), Some("others"));
        assert_eq!(read(&stage, "note:///unlisted").await.as_deref(), Some("notes"));
        assert_eq!(read(&stage, "other:///unlisted").await, None, "either of two could have it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_lists_is_read_from_the_only_backend_with_resources() {
        let stage = Stage::new(&[("others", others)]);
        assert_eq!(read(&stage, "other:///unlisted").await.as_deref(), Some("others"));
    }
}
