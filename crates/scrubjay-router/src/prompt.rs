//! The prompts.

use crate::{RouteTask, ToolPresentation};

/// How many characters of a context are sent: a selection may be a whole file.
const CONTEXT_CHARS_MAX: usize = 8000;

/// Writes the system prompt. With backends its wording is part of the gateway's contract.
pub(crate) fn system(mode: ToolPresentation) -> String {
    let what = match mode {
        ToolPresentation::Backends => "its `mcp_method` and `mcp_params`",
        ToolPresentation::Catalog => "its parameters",
    };
    format!(
        "You are an expert AI assistant. Based on the user's query, provided context (such as \
         `currentWorkingDirectory` or `activeDocumentURI`), and available tools, choose exactly one tool to call by \
         specifying {what}. Use the provided context to inform the parameters if applicable and relevant. If the \
         query is ambiguous, cannot be handled by any tool, or if essential information is missing from the query \
         or context for a tool to operate, you MUST NOT call any tool."
    )
}

/// Writes a task as the user's message.
pub(crate) fn user(task: &RouteTask) -> String {
    let mut text = format!("User query: \"{}\"", task.query);
    if let Some(context) = task.context.as_ref().filter(|context| !context.is_null()) {
        let context: String = context.to_string().chars().take(CONTEXT_CHARS_MAX).collect();
        text += &format!("\nContext: {context}");
    }
    if let Some((question, answer)) = &task.clarification {
        text += &format!("\nYou asked: \"{question}\"\nThe user answered: \"{answer}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_has_the_task_and_its_context() {
        let task = |context| RouteTask { query: "read it".to_owned(), context, clarification: None };
        assert_eq!(user(&task(None)), "User query: \"read it\"");
        assert_eq!(user(&task(Some(json!(null)))), "User query: \"read it\"");
        let context = json!({"currentWorkingDirectory": "/w"});
        let expected = "User query: \"read it\"\nContext: {\"currentWorkingDirectory\":\"/w\"}";
        assert_eq!(user(&task(Some(context))), expected);
        let long = json!({"selectionText": "x".repeat(100_000)});
        assert!(user(&task(Some(long))).len() < 9000);
        let clarification = Some(("Which?".to_owned(), "a.txt".to_owned()));
        let expected = "User query: \"read it\"\nYou asked: \"Which?\"\nThe user answered: \"a.txt\"";
        assert_eq!(user(&RouteTask { clarification, ..task(None) }), expected);
    }
}
