//! Tokens of messaging, monitoring and other services.

use std::ops::Range;

use super::{Detector, Form, token};
use crate::redact::shape::{Class, begins};

pub(super) const ALL: &[Detector] = &[
    token(
        "slack-token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-"],
        Class::Dashed,
        20..256,
    ),
    token("slack-token", &["xoxe.xoxp-", "xoxe.xoxb-"], Class::Dashed, 20..256),
    Detector {
        name: "slack-webhook",
        anchors: &["hooks.slack.com/services/", "hooks.slack.com/workflows/"],
        any_case: false,
        form: Form::By(slack_webhook),
    },
    Detector {
        name: "discord-webhook",
        anchors: &["/api/webhooks/"],
        any_case: false,
        form: Form::By(discord_webhook),
    },
    Detector { name: "telegram-token", anchors: &[":AA"], any_case: false, form: Form::By(telegram) },
    token("sendgrid-key", &["SG."], Class::Dotted, 60..70),
    token("mailgun-key", &["key-"], Class::Hex, 32..33),
    token("mailchimp-key", &["xkeysib-"], Class::Dashed, 64..90),
    token("newrelic-key", &["NRAK-", "NRJS-", "NRRA-"], Class::Alnum, 19..45),
    token("sentry-token", &["sntrys_", "sntryu_"], Class::Base64, 40..400),
    token("grafana-token", &["glsa_", "glc_"], Class::Base64, 32..400),
    token("notion-token", &["ntn_", "secret_"], Class::Alnum, 43..51),
    token("figma-token", &["figd_"], Class::Dashed, 40..64),
    token("facebook-token", &["EAACEdEose0cBA"], Class::Alnum, 20..256),
    token("dynatrace-token", &["dt0c01.", "dt0s01."], Class::Dotted, 80..100),
    token("planetscale-token", &["pscale_tkn_", "pscale_pw_"], Class::Dotted, 32..70),
    token("supabase-key", &["sbp_"], Class::Hex, 40..41),
    token("tailscale-key", &["tskey-"], Class::Dashed, 20..90),
    token("ngrok-token", &["ngrok_"], Class::Word, 30..64),
];

fn slack_webhook(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + memchr::memmem::find(&text[at..], b"s/")? + 2;
    let end = Class::Base64.run(text, start);
    (end - start >= 20).then_some(start..end)
}

fn discord_webhook(text: &[u8], at: usize) -> Option<Range<usize>> {
    let id = at + "/api/webhooks/".len();
    let start = Class::Alnum.run(text, id) + 1;
    let end = Class::Dashed.run(text, start);
    (text.get(start - 1) == Some(&b'/') && end >= start + 60).then_some(start..end)
}

/// Finds `123456789:AA…`: the anchor stands in the middle.
fn telegram(text: &[u8], at: usize) -> Option<Range<usize>> {
    let digits = text[..at].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let end = Class::Dashed.run(text, at + 1);
    let fits = (8..=10).contains(&digits) && end - at - 1 == 35 && begins(text, at - digits);
    fits.then_some(at - digits..end)
}
