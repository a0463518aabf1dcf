//! Estimates how many tokens of a model's context tools cost: their definitions and their results.

use std::collections::BTreeMap;

use serde::Serialize;

use super::TapeCalls;

/// The tokenizer whose counts are estimated.
const TOKENS_LIKE: &str = "o200k";

/// What tools cost a model's context, in estimated tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContextCost {
    /// The tokenizer whose counts are estimated.
    pub estimated_like: &'static str,
    /// The definitions of all tools in the last list, which are sent with every request to the model.
    pub definition_tokens: u64,
    /// The answer with that list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_entry: Option<u64>,
    /// The results of all calls of tools.
    pub result_tokens: u64,
    /// Each tool, the most expensive first.
    pub tools: Vec<ToolCost>,
}

/// What one tool costs, in estimated tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolCost {
    /// The tool.
    pub tool: String,
    /// Its definition; none if no list on the tape has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition_tokens: Option<u64>,
    /// How often it was called.
    pub calls: u64,
    /// All its results.
    pub result_tokens: u64,
    /// The mean of a result.
    pub result_tokens_mean: u64,
    /// The largest result.
    pub result_tokens_max: u64,
    /// The entry of the largest result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_entry: Option<u64>,
}

impl ToolCost {
    fn total(&self) -> u64 {
        self.result_tokens.saturating_add(self.definition_tokens.unwrap_or(0))
    }
}

pub(super) fn cost(now: &TapeCalls) -> ContextCost {
    let lists = &now.tool_lists.lists;
    let last = lists.iter().rev().find(|list| list.via.is_none());
    let mut tools: BTreeMap<&str, ToolCost> = BTreeMap::new();
    // A tool that is no longer listed keeps its last definition. If the client listed tools, its lists count and those
    // of backends do not: the client's model got the former.
    for list in lists.iter().filter(|list| list.via.is_none() || last.is_none()) {
        for (tool, listed) in &list.tools {
            tools.entry(tool).or_default().definition_tokens = Some(listed.tokens);
        }
    }
    for call in now.calls.iter().filter(|call| call.is_client_request()) {
        let Some(tool) = call.tool() else { continue };
        let cost = tools.entry(tool).or_default();
        cost.calls += 1;
        cost.result_tokens = cost.result_tokens.saturating_add(call.answered_tokens);
        if call.answer.is_some()
            && (cost.largest_entry.is_none() || call.answered_tokens > cost.result_tokens_max)
        {
            (cost.result_tokens_max, cost.largest_entry) = (call.answered_tokens, call.answer);
        }
    }
    let mut tools: Vec<ToolCost> = tools
        .into_iter()
        .map(|(tool, cost)| ToolCost {
            tool: tool.to_owned(),
            result_tokens_mean: cost.result_tokens.checked_div(cost.calls).unwrap_or(0),
            ..cost
        })
        .collect();
    tools.sort_by_key(|tool| std::cmp::Reverse(tool.total()));
    let listed = |list: &crate::exchange::ToolList| list.tools.values().map(|tool| tool.tokens).sum::<u64>();
    let definition_tokens =
        last.map_or_else(|| tools.iter().filter_map(|t| t.definition_tokens).sum(), listed);
    ContextCost {
        estimated_like: TOKENS_LIKE,
        definition_tokens,
        list_entry: last.map(|list| list.entry),
        result_tokens: tools.iter().fold(0, |sum, tool| sum.saturating_add(tool.result_tokens)),
        tools,
    }
}
