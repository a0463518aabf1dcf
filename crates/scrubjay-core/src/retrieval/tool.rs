//! The texts of a tool that retrieval reads: its own and those in its schema.

use serde_json::Value;

use super::ToolField;

/// The depth to which a schema is read, and the most texts that are read from it: a server can send any schema.
const DEPTH_MAX: usize = 8;
const TEXTS_MAX: usize = 400;

/// The texts of a tool, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolText {
    /// The server that has it.
    pub backend: String,
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its description.
    pub description: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// The titles and descriptions in its schema.
    pub schema: Vec<String>,
    /// The values that its schema lists.
    pub enums: Vec<String>,
}

impl ToolText {
    /// Takes a tool's definition as a server lists it.
    #[must_use]
    pub fn from_definition(backend: &str, tool: &Value) -> Self {
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        let title = tool["annotations"]["title"].as_str().map_or_else(|| text("title"), str::to_owned);
        let mut texts = Self {
            backend: backend.to_owned(),
            name: text("name"),
            title,
            description: text("description"),
            ..Self::default()
        };
        texts.read_schema(&tool["inputSchema"], 0);
        texts
    }

    /// Returns its name with the backend's: `backend/tool`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.backend, self.name)
    }

    fn read_schema(&mut self, schema: &Value, depth: usize) {
        if depth > DEPTH_MAX || self.parameters.len() + self.schema.len() + self.enums.len() > TEXTS_MAX {
            return;
        }
        for key in ["title", "description"] {
            self.schema.extend(schema[key].as_str().map(str::to_owned));
        }
        let values = schema["enum"].as_array().into_iter().flatten().chain([&schema["const"]]);
        self.enums.extend(values.filter_map(Value::as_str).map(str::to_owned));
        if let Some(properties) = schema["properties"].as_object() {
            for (name, schema) in properties {
                self.parameters.push(name.clone());
                self.read_schema(schema, depth + 1);
            }
        }
        let inner = ["anyOf", "oneOf", "allOf"].iter().flat_map(|key| schema[*key].as_array()).flatten();
        for schema in inner.chain([&schema["items"]]) {
            self.read_schema(schema, depth + 1);
        }
    }

    /// Returns the texts of a field.
    pub(super) fn texts(&self, field: ToolField) -> &[String] {
        match field {
            ToolField::Name => std::slice::from_ref(&self.name),
            ToolField::Title => std::slice::from_ref(&self.title),
            ToolField::Backend => std::slice::from_ref(&self.backend),
            ToolField::Description => std::slice::from_ref(&self.description),
            ToolField::Parameter => &self.parameters,
            ToolField::Schema => &self.schema,
            ToolField::Enum => &self.enums,
            ToolField::AskedAs => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_read_whole() {
        let tool = json!({"name": "set_mode", "title": "Set", "description": "Sets.", "inputSchema": {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "enum": ["fast", "slow"], "description": "how"},
                "where": {"type": "array", "items": {"properties": {"room": {"const": "hall"}}}},
            },
        }});
        let texts = ToolText::from_definition("lamp", &tool);
        assert_eq!(texts.full_name(), "lamp/set_mode");
        assert_eq!(texts.parameters, ["mode", "where", "room"]);
        assert_eq!(
            (texts.schema, texts.enums),
            (vec!["how".to_owned()], ["fast", "slow", "hall"].map(str::to_owned).into())
        );
    }

    #[test]
    fn a_very_deep_schema_is_read_up_to_a_limit() {
        let mut schema = json!({"description": "x"});
        for _ in 0..100 {
            schema = json!({"properties": {"a": schema}});
        }
        let texts = ToolText::from_definition("b", &json!({"name": "n", "inputSchema": schema}));
        assert!(texts.parameters.len() <= DEPTH_MAX + 1);
        assert_eq!(ToolText::from_definition("b", &json!(3)).name, "");
    }
}
