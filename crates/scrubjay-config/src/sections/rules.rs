//! `recorder.rules`: what is done to messages on their way.

mod changing;
mod matching;

use std::sync::Arc;

use scrubjay_core::entry::is_name;
use scrubjay_core::protocol::code;
use scrubjay_core::rules::{
    DELAY_MAX, JsonPath, RULES_MAX, Rule, RuleAction, RuleMatch, Rules, STRICT_PREFIX,
};
use scrubjay_core::units::parse_duration;

use self::changing::{json_text, read_changes};
use self::matching::read_match;
use crate::cursor::Cursor;
use crate::loaded::Loaded;
use crate::setting::{Choice, Setting, ShownSetting, choice, write_duration};

const NAME: &str = "must be 1 to 64 letters, digits, _ - . : or /";

impl Loaded {
    /// Returns the rules for messages on their way; `None` if there are none.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        let rules = &self.settings.recorder.rules;
        (!rules.is_empty()).then(|| rules.clone())
    }
}

/// The rules for messages on their way; `config show` names each with what it does.
impl Setting for Rules {
    type Value = Arc<Self>;

    const FITS_VARIABLE: bool = false;

    fn read(at: &Cursor<'_>) -> Option<Arc<Self>> {
        let items = at.list_of(" of rules")?;
        if items.len() > RULES_MAX {
            return at.wrong(format!("must not have more than {RULES_MAX} rules"));
        }
        at.if_right(|| {
            let mut list = Vec::<Rule>::new();
            for at in &items {
                let Some(rule) = at.if_right(|| read_rule(at)) else { continue };
                if list.iter().any(|other| other.name == rule.name) {
                    at.member_or_self("name").wrong::<()>("is the name of an earlier rule, too");
                }
                list.push(rule);
            }
            Some(Arc::new(Self::new(list)))
        })
    }

    fn show(at: &Cursor<'_>, out: &mut Vec<ShownSetting>) {
        let described = |at: &Cursor<'_>| {
            Some(format!("{}: {}", at.member("name")?.text()?, at.get::<Verb>("action")?.name()))
        };
        let rules = at.read_items(" of rules", described);
        out.push(ShownSetting::of(at, rules.unwrap_or_default()));
    }
}

// What a rule does.
choice!(enum Verb: "allow" = Allow, "block" = Block, "modify" = Modify, "delay" = Delay, "mock" = Mock, "tag" = Tag);

/// Reads one rule; reports all of its problems.
fn read_rule(at: &Cursor<'_>) -> Option<Rule> {
    let verb = required(at, "action").and_then(|at| Verb::read(&at));
    let name = required(at, "name").and_then(|at| read_name(&at));
    let own: Option<&[&str]> = verb.map(|verb| match verb {
        Verb::Allow => &[][..],
        Verb::Block => &["code", "message"],
        Verb::Modify => &["set", "remove", "replace"],
        Verb::Delay => &["delay"],
        Verb::Mock => &["result"],
        Verb::Tag => &["tags"],
    });
    // Which keys a rule may have depends on its action; if that is wrong, no key is called unknown.
    if let Some(own) = own {
        at.entries(&[&["name", "match", "action"], own].concat());
    }
    let when = at.member("match").map_or_else(RuleMatch::default, |at| read_match(&at));
    let action = verb.and_then(|verb| match verb {
        Verb::Allow => Some(RuleAction::Allow),
        Verb::Block => read_block(at, name.as_deref().unwrap_or_default()),
        Verb::Modify => read_changes(at).map(RuleAction::Modify),
        Verb::Delay => read_delay(&required(at, "delay")?),
        Verb::Mock => Some(RuleAction::Mock { result: json_text(&required(at, "result")?)? }),
        Verb::Tag => read_tags(&required(at, "tags")?),
    });
    Some(Rule { name: name?, when, action: action? })
}

/// Returns the value of a required key, which must not be null either.
fn required<'a>(at: &Cursor<'a>, name: &str) -> Option<Cursor<'a>> {
    at.member(name).filter(|at| !at.is_null()).or_else(|| at.member_or_self(name).wrong("is required"))
}

fn read_name(at: &Cursor<'_>) -> Option<String> {
    let name = at.text()?;
    if name.starts_with(STRICT_PREFIX) {
        let what = "so begin the reasons why messages are refused";
        return at.wrong(format!("must not begin with {STRICT_PREFIX}: {what}"));
    }
    if is_name(name) { Some(name.to_owned()) } else { at.wrong(NAME) }
}

fn read_path(at: &Cursor<'_>) -> Option<JsonPath> {
    at.reported(JsonPath::parse(at.text()?))
}

fn read_block(at: &Cursor<'_>, name: &str) -> Option<RuleAction> {
    let read_code = |at: Cursor<'_>| at.parse("a whole number", |text| text.parse().ok());
    let code = at.member("code").map_or(Some(code::BLOCKED), read_code)?;
    let message = at.member("message").and_then(|at| Some(at.text()?.to_owned()));
    let message = message.unwrap_or_else(|| format!("blocked by the rule {name}"));
    Some(RuleAction::Block { code, message })
}

fn read_delay(at: &Cursor<'_>) -> Option<RuleAction> {
    let must_be = format!("a duration of up to {}, like 200ms", write_duration(DELAY_MAX));
    at.parse(&must_be, |text| {
        let delay = parse_duration(text).ok();
        delay.filter(|delay| !delay.is_zero() && *delay <= DELAY_MAX).map(RuleAction::Delay)
    })
}

fn read_tags(at: &Cursor<'_>) -> Option<RuleAction> {
    let tags = at.each(|tag| if is_name(tag) { Ok(tag.to_owned()) } else { Err(NAME) })?;
    if tags.is_empty() { at.wrong("must name at least one") } else { Some(RuleAction::Tag(tags)) }
}

#[cfg(test)]
mod tests;
