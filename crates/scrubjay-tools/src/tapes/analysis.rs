//! The analysis of a tape as an agent sees it, within a token limit.

use schemars::JsonSchema;
use scrubjay_core::analysis::{
    Analysis, Anomaly, Bottleneck, ContextCost, ErrorGroup, Finding, Flow, LatencyProfile, Sequence, ToolCost,
};
use scrubjay_core::tokens::estimate_tokens;
use scrubjay_core::units::counted;
use scrubjay_store::views::budget::tokens_of;
use serde::Serialize;

use super::{ms, quoted};

// Doc comments are descriptions in the schema, which costs tokens: members whose names say enough have none.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AnalysisView {
    /// The tape.
    tape: String,
    /// The connection's name.
    server: String,
    /// How many earlier tapes of that name it was compared with.
    compared_with: usize,
    /// How messages flowed.
    message_flow: FlowView,
    /// Which calls follow each other, the most frequent sequence first.
    method_sequences: Vec<SequenceView>,
    /// What failed, the most frequent first.
    common_errors: Vec<ErrorView>,
    /// How long calls took, those that took most time in total first.
    performance_profile: Vec<ProfileView>,
    /// What to speed up first.
    bottlenecks: Vec<BottleneckView>,
    /// What went wrong on this tape, the most important first.
    findings: Vec<FindingView>,
    /// How many tokens of a model's context tools use.
    context: ContextView,
    /// What differs from earlier tapes.
    anomalies: Vec<AnomalyView>,
    /// How many rows of all lists were left out: use a higher limit or more max_tokens to see them.
    left_out: usize,
    /// Notes about this answer.
    notes: Vec<String>,
    /// About how many tokens this answer has.
    tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FlowView {
    /// From the first message to the last.
    duration_ms: f64,
    client_requests: u64,
    server_requests: u64,
    notifications: u64,
    stderr_lines: u64,
    /// Messages that are not JSON-RPC, and answers without a request.
    odd: u64,
    /// Requests without an answer.
    unanswered: u64,
    /// The most requests that were in flight at once.
    in_flight_max: u64,
    /// The longest time without any request, and the entry that ended it.
    longest_silence: Option<SilenceView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SilenceView {
    duration_ms: f64,
    before_entry: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SequenceView {
    /// The calls, in order.
    subjects: Vec<String>,
    count: u64,
    /// Whether it is a loop: the last call was followed by the first again.
    is_round: bool,
    /// The median time from each to the next.
    gaps_ms: Vec<f64>,
    /// The entries of its first occurrence.
    entries: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ErrorView {
    /// What failed.
    subject: String,
    code: Option<i64>,
    /// The text that the errors have in common.
    shape: String,
    count: u64,
    /// How many calls of the same subject there were.
    of_calls: u64,
    entries: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ProfileView {
    /// What was called.
    subject: String,
    count: u64,
    failed: u64,
    unanswered: u64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    slowest_entry: Option<u64>,
    /// Its share of the time of all calls, 0 to 1.
    share: f64,
    /// The median size of the answers.
    answer_bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct BottleneckView {
    subject: String,
    /// How much waiting time could be saved.
    saves_ms: f64,
    /// The change that would save it.
    if_so: &'static str,
    /// The slowest calls.
    entries: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FindingView {
    /// tool changed, tool vanished, unknown tool, always fails, failures in a row, loop, identical retries or slow
    /// outlier.
    kind: &'static str,
    subject: String,
    /// The finding as a sentence.
    summary: String,
    /// How often, or how many.
    count: u64,
    entries: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ContextView {
    /// The tokenizer whose counts are estimated.
    estimated_like: &'static str,
    /// The tokens of all tool definitions in the last list.
    definition_tokens: u64,
    /// The tokens of the results of all tool calls.
    result_tokens: u64,
    /// The most expensive tools first.
    tools: Vec<ToolCostView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ToolCostView {
    tool: String,
    definition_tokens: Option<u64>,
    calls: u64,
    result_tokens: u64,
    result_tokens_mean: u64,
    result_tokens_max: u64,
    /// The entry of the largest result.
    largest_entry: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AnomalyView {
    /// changed tool, new tool, new error, more errors, slower, larger or new order.
    kind: &'static str,
    subject: String,
    /// The finding as a sentence.
    summary: String,
    entries: Vec<u64>,
}

impl AnalysisView {
    /// Takes `rows` rows of each list, or fewer if they do not fit.
    pub(super) fn fit(analysis: &Analysis, rows: usize, max_tokens: u64, note: Option<&str>) -> Self {
        let mut rows = rows;
        loop {
            let mut view = Self::of(analysis, rows, note);
            // The answer has both the data and the text, so both count.
            view.tokens = (tokens_of(&view) + estimate_tokens(&view.text())) as u64;
            if view.tokens <= max_tokens || rows <= 1 {
                return view;
            }
            // Halved rather than counted down: each try writes the whole answer.
            rows /= 2;
        }
    }

    fn of(analysis: &Analysis, rows: usize, note: Option<&str>) -> Self {
        let lengths = [
            analysis.method_sequences.len(),
            analysis.common_errors.len(),
            analysis.performance_profile.len(),
            analysis.bottlenecks.len(),
            analysis.anomalies.len(),
            analysis.findings.len(),
            analysis.context.tools.len(),
        ];
        Self {
            tape: analysis.tape.clone(),
            server: quoted(&analysis.server),
            compared_with: analysis.compared_with,
            message_flow: FlowView::of(&analysis.message_flow),
            method_sequences: first(&analysis.method_sequences, rows, SequenceView::of),
            common_errors: first(&analysis.common_errors, rows, ErrorView::of),
            performance_profile: first(&analysis.performance_profile, rows, ProfileView::of),
            bottlenecks: first(&analysis.bottlenecks, rows, BottleneckView::of),
            findings: first(&analysis.findings, rows, FindingView::of),
            context: ContextView::of(&analysis.context, rows),
            anomalies: first(&analysis.anomalies, rows, AnomalyView::of),
            left_out: lengths.iter().map(|length| length.saturating_sub(rows)).sum(),
            notes: note.map(str::to_owned).into_iter().collect(),
            tokens: 0,
        }
    }

    /// Writes the analysis as text.
    pub(super) fn text(&self) -> String {
        let flow = &self.message_flow;
        let mut lines = self.notes.clone();
        lines.push(format!(
            "Tape {} of {}: {} of the client, {} of the server, {} in {} ms; {} \
             unanswered; at most {} at once.",
            self.tape,
            self.server,
            counted(flow.client_requests, "request"),
            flow.server_requests,
            counted(flow.notifications, "notification"),
            flow.duration_ms,
            flow.unanswered,
            flow.in_flight_max
        ));
        lines.extend(self.findings.iter().map(FindingView::line));
        lines.extend(self.context.lines());
        lines.extend(self.performance_profile.iter().map(ProfileView::line));
        lines.extend(self.bottlenecks.iter().map(BottleneckView::line));
        lines.extend(self.common_errors.iter().map(ErrorView::line));
        lines.extend(self.method_sequences.iter().map(SequenceView::line));
        lines.push(match (self.compared_with, self.anomalies.is_empty()) {
            (0, _) => "There is no earlier tape of this name to compare with.".to_owned(),
            (count, true) => format!("Nothing differs from the {} before.", counted(count, "tape")),
            (count, false) => format!("Differences from the {} before:", counted(count, "tape")),
        });
        lines.extend(self.anomalies.iter().map(AnomalyView::line));
        if self.left_out > 0 {
            let rows = counted(self.left_out, "row");
            lines.push(format!("… {rows} more: raise limit or max_tokens."));
        }
        lines.join("\n")
    }
}

fn first<T, V>(all: &[T], rows: usize, view: impl Fn(&T) -> V) -> Vec<V> {
    all.iter().take(rows).map(view).collect()
}

fn shown(entries: &[u64]) -> String {
    entries.iter().map(|entry| format!("#{entry}")).collect::<Vec<_>>().join(" ")
}

impl FlowView {
    fn of(flow: &Flow) -> Self {
        Self {
            duration_ms: ms(flow.duration_ns),
            client_requests: flow.client_requests,
            server_requests: flow.server_requests,
            notifications: flow.notifications,
            stderr_lines: flow.stderr_lines,
            odd: flow.odd,
            unanswered: flow.unanswered,
            in_flight_max: flow.in_flight_max,
            longest_silence: flow.longest_silence.as_ref().map(|silence| SilenceView {
                duration_ms: ms(silence.duration_ns),
                before_entry: silence.before_entry,
            }),
        }
    }
}

impl SequenceView {
    fn of(sequence: &Sequence) -> Self {
        Self {
            subjects: sequence.subjects.iter().map(|subject| quoted(subject)).collect(),
            count: sequence.count,
            is_round: sequence.is_round,
            gaps_ms: sequence.gaps_ns.iter().map(|ns| ms(*ns)).collect(),
            entries: sequence.entries.clone(),
        }
    }

    fn line(&self) -> String {
        let round = if self.is_round { " ↻" } else { "" };
        let (subjects, times) = (self.subjects.join(" → "), counted(self.count, "time"));
        format!("order: {subjects}{round} ({times}, first {})", shown(&self.entries))
    }
}

impl ErrorView {
    fn of(group: &ErrorGroup) -> Self {
        Self {
            subject: quoted(&group.subject),
            code: group.code,
            shape: quoted(&group.shape),
            count: group.count,
            of_calls: group.of_calls,
            entries: group.entries.clone(),
        }
    }

    fn line(&self) -> String {
        let code = self.code.map(|code| format!(" {code}")).unwrap_or_default();
        let Self { subject, count, of_calls, shape, .. } = self;
        format!("failed: {subject}: {count} of {of_calls} with{code} \"{shape}\" ({})", shown(&self.entries))
    }
}

impl ProfileView {
    fn of(profile: &LatencyProfile) -> Self {
        Self {
            subject: quoted(&profile.subject),
            count: profile.count,
            failed: profile.failed,
            unanswered: profile.unanswered,
            p50_ms: ms(profile.p50_ns),
            p90_ms: ms(profile.p90_ns),
            p99_ms: ms(profile.p99_ns),
            max_ms: ms(profile.max_ns),
            slowest_entry: profile.slowest_entry,
            share: (profile.share * 1000.0).round() / 1000.0,
            answer_bytes: profile.answered_bytes,
        }
    }

    fn line(&self) -> String {
        let slowest = self.slowest_entry.map(|entry| format!(" (#{entry})")).unwrap_or_default();
        let Self { subject, count, failed, p50_ms, p99_ms, max_ms, .. } = self;
        format!(
            "calls: {subject}: {count}, {failed} failed, p50 {p50_ms} ms, p99 {p99_ms} ms, max {max_ms} ms{slowest}"
        )
    }
}

impl BottleneckView {
    fn of(bottleneck: &Bottleneck) -> Self {
        Self {
            subject: quoted(&bottleneck.subject),
            saves_ms: ms(bottleneck.saves_ns),
            if_so: bottleneck.remedy.words(),
            entries: bottleneck.entries.clone(),
        }
    }

    fn line(&self) -> String {
        let Self { subject, saves_ms, if_so, .. } = self;
        format!("speed up first: {subject}: saves {saves_ms} ms if {if_so} ({})", shown(&self.entries))
    }
}

impl FindingView {
    fn of(finding: &Finding) -> Self {
        Self {
            kind: finding.kind.words(),
            subject: quoted(&finding.subject),
            summary: quoted(&finding.summary),
            count: finding.count,
            entries: finding.entries.clone(),
        }
    }

    fn line(&self) -> String {
        format!("{}: {}: {} ({})", self.kind, self.subject, self.summary, shown(&self.entries))
    }
}

impl ContextView {
    fn of(context: &ContextCost, rows: usize) -> Self {
        Self {
            estimated_like: context.estimated_like,
            definition_tokens: context.definition_tokens,
            result_tokens: context.result_tokens,
            tools: first(&context.tools, rows, ToolCostView::of),
        }
    }

    fn lines(&self) -> Vec<String> {
        if self.tools.is_empty() {
            return Vec::new();
        }
        let Self { definition_tokens, result_tokens, estimated_like, .. } = self;
        let mut lines = vec![format!(
            "tokens (estimated, about as {estimated_like} counts): tools/list {definition_tokens}, all results \
             {result_tokens}"
        )];
        lines.extend(self.tools.iter().map(ToolCostView::line));
        lines
    }
}

impl ToolCostView {
    fn of(cost: &ToolCost) -> Self {
        Self {
            tool: quoted(&cost.tool),
            definition_tokens: cost.definition_tokens,
            calls: cost.calls,
            result_tokens: cost.result_tokens,
            result_tokens_mean: cost.result_tokens_mean,
            result_tokens_max: cost.result_tokens_max,
            largest_entry: cost.largest_entry,
        }
    }

    fn line(&self) -> String {
        let Self { tool, calls, result_tokens, result_tokens_max, .. } = self;
        let defined =
            self.definition_tokens.map(|tokens| format!("definition {tokens}, ")).unwrap_or_default();
        let largest = self.largest_entry.map(|entry| format!(" (#{entry})")).unwrap_or_default();
        format!(
            "tokens: {tool}: {defined}{calls} results {result_tokens}, largest {result_tokens_max}{largest}"
        )
    }
}

impl AnomalyView {
    fn of(anomaly: &Anomaly) -> Self {
        Self {
            kind: anomaly.kind.words(),
            subject: quoted(&anomaly.subject),
            summary: quoted(&anomaly.summary),
            entries: anomaly.entries.clone(),
        }
    }

    fn line(&self) -> String {
        format!("{}: {}: {} ({})", self.kind, self.subject, self.summary, shown(&self.entries))
    }
}
