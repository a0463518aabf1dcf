//! Tokens of messaging, monitoring and other services.

use std::ops::Range;

use super::{Detector, Form, token};
use crate::redact::shape::{ByteClass, begins};

pub(super) const ALL: &[Detector] = &[
    token(
        "slack-token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-"],
        ByteClass::Dashed,
        20..256,
    ),
    token("slack-token", &["xoxe.xoxp-", "xoxe.xoxb-"], ByteClass::Dashed, 20..256),
    Detector {
        name: "slack-webhook",
        anchors: &["hooks.slack.com/services/", "hooks.slack.com/workflows/"],
        any_case: false,
        form: Form::Custom(slack_webhook),
    },
    Detector {
        name: "discord-webhook",
        anchors: &["/api/webhooks/"],
        any_case: false,
        form: Form::Custom(discord_webhook),
    },
    Detector { name: "telegram-token", anchors: &[":AA"], any_case: false, form: Form::Custom(telegram) },
    token("sendgrid-key", &["SG."], ByteClass::Dotted, 60..70),
    token("mailgun-key", &["key-"], ByteClass::Hex, 32..33),
    token("mailchimp-key", &["xkeysib-"], ByteClass::Dashed, 64..90),
    token("newrelic-key", &["NRAK-", "NRJS-", "NRRA-"], ByteClass::Alnum, 19..45),
    token("sentry-token", &["sntrys_", "sntryu_"], ByteClass::Base64, 40..400),
    token("grafana-token", &["glsa_", "glc_"], ByteClass::Base64, 32..400),
    token("notion-token", &["ntn_", "secret_"], ByteClass::Alnum, 43..51),
    token("figma-token", &["figd_"], ByteClass::Dashed, 40..64),
    token("facebook-token", &["EAACEdEose0cBA"], ByteClass::Alnum, 20..256),
    token("dynatrace-token", &["dt0c01.", "dt0s01."], ByteClass::Dotted, 80..100),
    token("planetscale-token", &["pscale_tkn_", "pscale_pw_"], ByteClass::Dotted, 32..70),
    token("supabase-key", &["sbp_"], ByteClass::Hex, 40..41),
    token("tailscale-key", &["tskey-"], ByteClass::Dashed, 20..90),
    token("ngrok-token", &["ngrok_"], ByteClass::Word, 30..64),
];

fn slack_webhook(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + memchr::memmem::find(&text[at..], b"s/")? + 2;
    let end = ByteClass::Base64.run(text, start);
    (end - start >= 20).then_some(start..end)
}

fn discord_webhook(text: &[u8], at: usize) -> Option<Range<usize>> {
    let id = at + "/api/webhooks/".len();
    let start = ByteClass::Alnum.run(text, id) + 1;
    let end = ByteClass::Dashed.run(text, start);
    (text.get(start - 1) == Some(&b'/') && end >= start + 60).then_some(start..end)
}

/// Finds `123456789:AA…`; the anchor is in the middle.
fn telegram(text: &[u8], at: usize) -> Option<Range<usize>> {
    let digits = text[..at].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let end = ByteClass::Dashed.run(text, at + 1);
    let is_token = (8..=10).contains(&digits) && end - at - 1 == 35 && begins(text, at - digits);
    is_token.then_some(at - digits..end)
}
