//! `scrubjay tape search`.

use std::ffi::OsString;
use std::ops::Range;
use std::process::ExitCode;

use clap::Args;
use scrubjay_core::inert::inert;
use scrubjay_core::query::{self, SearchQuery};
use scrubjay_core::units;
use scrubjay_store::index::{Facet, SearchResults, Snippet, TapeHit};
use scrubjay_tape::clock;

use crate::cli::{Global, WRONG_USAGE, tell};
use crate::commands::index;
use crate::pager::Pager;
use crate::render::{Align, Table, local_time, print_json};

const EXAMPLES: &str = "\
Examples:
  scrubjay tape search tool:read_file error:true since:yesterday
  scrubjay tape search 'tool:write_file -arg.path~/tmp >0.5s sort:took'
  scrubjay tape search --facets 'tokens:>5000' since:7d";

/// Search all recordings
///
/// A query has words to find: "quoted words" must follow each other, rea* is a prefix. It can have filters:
///
///   tool:read_file method:tools/* name:file:///a type:stderr via:BACKEND rule:NAME tag:NAME
///                                           what a message is about
///   server:NAME session:ID tape:ID tape:latest
///                                           where it was recorded
///   error:true code:-32601 >0.5ms <2s       how the request ended, and after how long
///   'tokens:>5000' 'tokens:<200'            how many tokens request and answer have (estimated)
///   since:2d since:yesterday until:2026-11-01 until:2026-11-01T14:30
///                                           when it was; until:DAY includes the whole day
///   arg.path=/etc/hosts arg.files[0].size>2 param.name result.content.*.text~refused error.message~denied
///                                           fields: = equals, ~ contains, > above, < below, alone: exists
///   -word -"a phrase" -tool:ping -arg.path=/x
///                                           a - in front negates
///   tool:read_file refused OR denied, (tool:a x) OR (tool:b y)
///                                           OR joins its two neighbours; parentheses group
///   sort:took sort:size sort:tokens sort:-time limit:50 offset:20
///                                           order and page
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = EXAMPLES)]
pub(crate) struct SearchArgs {
    /// What to look for, for example: tool:read_file error:true >500ms since:2d '"connection refused"'
    #[arg(value_name = "QUERY")]
    query: Vec<String>,
    /// Also count the results by method, tool, session, error code and day
    #[arg(long)]
    facets: bool,
}

/// Put before a word of a query that begins with `-`, so that clap does not treat it as a flag. A control character,
/// because nobody types one in a query.
const MARK: char = '\u{1}';

/// Returns the command line, in which words of a query that begin with `-` and are no flags (`-tool:ping`) are marked.
pub(crate) fn marked_words(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut marked: Vec<OsString> = Vec::new();
    let (mut is_search, mut is_over) = (false, false);
    for arg in args {
        is_over |= arg == "--";
        // `-q` and `--json` are flags; a longer word behind a single `-` is a negated word of the query.
        let is_word = arg
            .to_str()
            .is_some_and(|text| text.starts_with('-') && !text.starts_with("--") && text.chars().count() > 2);
        if is_search && is_word && !is_over {
            marked.push([OsString::from(MARK.to_string()), arg].into_iter().collect());
        } else {
            is_search |= arg == "search" && marked.last().is_some_and(|before| before == "tape");
            marked.push(arg);
        }
    }
    marked
}

pub(crate) fn run(global: &Global, args: &SearchArgs) -> anyhow::Result<ExitCode> {
    let words: Vec<&str> = args.query.iter().map(|word| word.strip_prefix(MARK).unwrap_or(word)).collect();
    let typed = words.join(" ");
    let query = match query::parse(&typed, clock::now().wall_ns, crate::render::zone()) {
        Ok(query) => query,
        Err(error) => {
            // Not returned as an error: that would exit with 1, the code of a search that failed.
            tell(&error.to_string());
            pointed(&typed, error.at).iter().for_each(|line| tell(line));
            return Ok(ExitCode::from(WRONG_USAGE));
        }
    };
    let (loaded, home) = global.load_with_home()?;
    let (runtime, index) = index::open_current(global, &home, &loaded.storage()?)?;
    let found = runtime.block_on(async {
        let found = index.search(&query).await;
        index.close().await;
        found
    })?;
    if global.json {
        print_json(&found_json(&query, &found))?;
    } else {
        let _pager = Pager::start(global);
        print(&found, args.facets)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the results as JSON, together with the query as it was parsed.
pub(crate) fn found_json(query: &SearchQuery, found: &SearchResults) -> serde_json::Value {
    serde_json::json!({
        "query": query,
        "total": found.total,
        "total_is_exact": found.total_is_exact,
        "looked_at_only": found.looked_at_only,
        "why_bounded": found.why_bounded,
        "hits": found.hits,
        "facets": found.facets,
    })
}

/// How many characters of a query are shown before and after the wrong part, so that the line fits on a screen.
const AROUND: usize = 60;

/// Returns the typed query around a wrong part, and a line of marks below it; nothing if the error is about all of it.
fn pointed(typed: &str, at: Range<usize>) -> Vec<String> {
    let parts = [typed.get(..at.start), typed.get(at.clone()), typed.get(at.end..)];
    let [Some(before), Some(place), Some(behind)] = parts else { return Vec::new() };
    if place.is_empty() {
        return Vec::new();
    }
    let before: Vec<char> = inert(before).chars().collect();
    let before: String = before[before.len().saturating_sub(AROUND)..].iter().collect();
    let place: String = inert(place).chars().take(AROUND).collect();
    let behind: String = inert(behind).chars().take(AROUND).collect();
    let marks = "^".repeat(place.chars().count());
    vec![format!("  {before}{place}{behind}"), format!("  {}{marks}", " ".repeat(before.chars().count()))]
}

fn print(found: &SearchResults, facets: bool) -> anyhow::Result<()> {
    let mut note = Table::note();
    let bounded = found.why_bounded.zip(found.looked_at_only);
    let bounded = bounded.map(|(why, count)| format!("; only {count} {}", why.words())).unwrap_or_default();
    if found.hits.is_empty() {
        let said =
            if found.total == 0 { "nothing found" } else { "no results at this offset: use a smaller one" };
        return note.line(&format!("{said}{bounded}"));
    }
    for hit in &found.hits {
        note.line(&headline(hit))?;
        note.line(&format!("    {}", marked(&hit.snippet)))?;
    }
    let total = if found.total_is_exact { String::new() } else { "at least ".to_owned() };
    note.line(&format!("{} of {total}{} found{bounded}", found.hits.len(), found.total))?;
    if facets {
        print_facets(found)?;
    }
    Ok(())
}

fn headline(hit: &TapeHit) -> String {
    let subject: Vec<&str> = [hit.method.as_deref(), hit.name.as_deref()].into_iter().flatten().collect();
    let mut words = vec![
        local_time(hit.wall_ns),
        hit.tape.get(..6).unwrap_or_default().to_owned(),
        format!("#{}", hit.entry),
        hit.server.clone(),
        if subject.is_empty() { hit.what.as_str().to_owned() } else { subject.join(" ") },
    ];
    words.extend(hit.via.as_ref().map(|via| format!("via {via}")));
    words.extend(hit.response_time_ns.map(units::duration));
    if hit.failed {
        words.push(hit.error_code.map_or("failed".to_owned(), |code| format!("failed {code}")));
    }
    words.extend(hit.undelivered.as_ref().map(|why| format!("undelivered: {why}")));
    if hit.intercepted {
        let rules: Vec<&str> = hit.applied_rules.iter().map(String::as_str).collect();
        words.push(format!("intercepted by {}", rules.join(", ")));
    }
    words.join("  ")
}

/// Returns the text of a hit with «» around the matches: marks that need no colour.
fn marked(snippet: &Snippet) -> String {
    let mut out = String::new();
    for (at, c) in snippet.text.chars().enumerate() {
        // An end before a beginning at the same place, so that neighbouring matches become «a»«b».
        out.extend(snippet.marks.iter().filter(|(_, end)| *end == at).map(|_| '»'));
        out.extend(snippet.marks.iter().filter(|(begin, _)| *begin == at).map(|_| '«'));
        out.push(c);
    }
    let end = snippet.text.chars().count();
    out.extend(snippet.marks.iter().filter(|(_, stop)| *stop == end).map(|_| '»'));
    out
}

fn print_facets(found: &SearchResults) -> anyhow::Result<()> {
    let facets = &found.facets;
    let mut table = Table::new(&[("OF", Align::Left), ("VALUE", Align::Left), ("COUNT", Align::Right)]);
    let lists: [(&str, &[Facet]); 5] = [
        ("method", &facets.methods),
        ("tool", &facets.tools),
        ("session", &facets.sessions),
        ("error code", &facets.error_codes),
        ("day (UTC)", &facets.days),
    ];
    for (name, values) in lists {
        for facet in values {
            table.row(false, &[name, &facet.value, &facet.count.to_string()]);
        }
    }
    table.print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_query_are_not_taken_for_flags() {
        let marked = |args: &str| -> String {
            let words = marked_words(args.split(' ').map(OsString::from));
            words.join(std::ffi::OsStr::new(" ")).to_string_lossy().replace(MARK, "+")
        };
        assert_eq!(marked("s tape search -tool:x --json -q -ab"), "s tape search +-tool:x --json -q +-ab");
        assert_eq!(marked("s --json tape search a -b:c -- -de"), "s --json tape search a +-b:c -- -de");
        assert_eq!(marked("s wrap -- tape -abc search -def"), "s wrap -- tape -abc search -def");
        assert_eq!(marked("s tape show -abc"), "s tape show -abc");
    }

    #[test]
    fn the_wrong_part_of_a_query_is_marked() {
        assert_eq!(pointed("größe tol:x y", 8..13), ["  größe tol:x y", "        ^^^^^"]);
        assert_eq!(pointed("\u{1b} \"a", 2..4), ["  \\u{1b} \"a", "         ^^"]);
        let long = format!("{} tol:x", "y".repeat(500));
        assert_eq!(pointed(&long, 501..506)[1].chars().count(), 2 + AROUND + 5);
        assert_eq!(pointed("all of it", 0..0), [""; 0]);
    }
}
