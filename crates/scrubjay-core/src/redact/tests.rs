//! What must be redacted, what must stay, and the properties of redaction.

use std::sync::LazyLock;

use base64::Engine;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[path = "tests/canaries.rs"]
mod every_form;
#[path = "tests/passwords.rs"]
mod passwords;

static STANDARD: LazyLock<Redactor> = LazyLock::new(Redactor::standard);

fn redact(text: &str) -> String {
    String::from_utf8(STANDARD.redact(text.as_bytes()).as_bytes().to_vec()).unwrap()
}

fn with_rules(rules: Vec<RedactionRule>) -> Redactor {
    Redactor::new(&RedactionConfig { rules, ..RedactionConfig::default() }).unwrap()
}

fn rule(pattern: RedactionPattern, action: RedactionAction) -> RedactionRule {
    RedactionRule { name: "mine".to_owned(), pattern, action }
}

/// A secret of each format, put together here so that no scanner takes this file for a leak.
fn canaries() -> Vec<(&'static str, String)> {
    let random = "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW1xY3zA5bC7dE9fG2hJ4kL6mN8pQ0rS";
    let hex = "0123456789abcdef9876543210fedcba0123456789abcdef9876543210fedcba";
    let part = |n: usize| &random[..n];
    vec![
        ("aws-access-key", format!("AKIA{}", "IOSFODNN7EXAMPLQ")),
        ("google-api-key", format!("AIza{}", part(35))),
        ("google-oauth-token", format!("ya29.{}", part(40))),
        ("github-token", format!("ghp_{}", part(36))),
        ("github-token", format!("github_pat_{}_{}", part(22), part(59))),
        ("gitlab-token", format!("glpat-{}", part(20))),
        ("npm-token", format!("npm_{}", part(36))),
        ("pypi-token", format!("pypi-AgEIcHlwaS5vcmc{}", part(60))),
        ("docker-token", format!("dckr_pat_{}", part(27))),
        ("anthropic-key", format!("sk-ant-api03-{}", part(60))),
        ("openai-key", format!("sk-{}", part(48))),
        ("openai-key", format!("sk-proj-{}", part(48))),
        ("huggingface-token", format!("hf_{}", part(34))),
        ("stripe-key", format!("sk_live_{}", part(24))),
        ("stripe-webhook-secret", format!("whsec_{}", part(32))),
        ("slack-token", format!("xoxb-123456789012-{}", part(24))),
        ("sendgrid-key", format!("SG.{}.{}", part(22), part(43))),
        ("shopify-token", format!("shpat_{}", &hex[..32])),
        ("digitalocean-token", format!("dop_v1_{hex}")),
        ("databricks-token", format!("dapi{}", &hex[..32])),
        ("vault-token", format!("hvs.{}", part(40))),
        ("telegram-token", format!("123456789:AA{}", part(33))),
        ("newrelic-key", format!("NRAK-{}", part(27))),
        ("jwt", format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{}", part(43))),
        ("azure-storage-key", format!("AccountKey={}{}==", part(60), part(26))),
        (
            "private-key",
            format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", part(60)),
        ),
        ("url-password", "postgres://app:c4n4ry-pw@db.example/x".to_owned()),
        ("bearer-token", format!("Authorization: Bearer {}", part(32))),
        ("basic-credentials", "Authorization: Basic dXNlcjpjNG40cnktcHc=".to_owned()),
        ("telling-name", "APP_PASSWORD=c4n4ry-pw".to_owned()),
        ("telling-name", format!("DEPLOY_TOKEN={}", part(24))),
        ("password", "password=c4n4ry-pw".to_owned()),
        ("cookie", "Cookie: sid=c4n4ry-pw; theme=dark".to_owned()),
        ("cookie", "Logged: Cookie: sid=c4n4ry-pw (ID: 7) in a project".to_owned()),
    ]
}

/// Tells whether the secret part of a canary is still there.
fn leaks(out: &str, canary: &str) -> bool {
    let telling = ["c4n4ry-pw", "jNG40cnk", "aB3dE5fG7hI9jK1l", "0123456789abcdef98765432", "IOSFODNN7"];
    telling.iter().any(|t| canary.contains(t) && out.contains(t))
}

fn escape_all(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

#[test]
fn every_format_is_redacted_in_every_position() {
    for (name, canary) in canaries() {
        let quoted = Value::from(canary.as_str()).to_string();
        let inner = json!({ "text": canary }).to_string();
        let base64 = base64::engine::general_purpose::STANDARD.encode(format!("x {canary} y"));
        let texts = [
            canary.clone(),
            format!("2026-01-01 INFO said {canary} and more"),
            format!("line one\n{canary}\nline three"),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{{"x":{quoted}}}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-1,"message":"failed","data":[{quoted}]}}}}"#),
            json!({ "result": { "content": [{ "type": "text", "text": format!("env:\n{canary}\nPATH=/bin") }] } }).to_string(),
            json!({ "text": inner }).to_string(),
            json!({ "text": json!({ "again": inner }).to_string() }).to_string(),
            json!({ "blob": base64 }).to_string(),
            format!("data {base64}"),
            format!(r#"{{"a":"{}"}}"#, escape_all(&canary)),
            format!(r#"{{"a":{}}}"#, quoted.replace('/', "\\/")),
            format!(r#"broken {{"a":"{}""#, escape_all(&canary)),
            json!({ "text": format!(r#"{{"a":"{}"}}"#, escape_all(&canary)) }).to_string(),
            format!(r#"{{"a":"b\u0026c","x":{quoted}}}"#),
        ];
        for text in texts {
            let out = redact(&text);
            assert!(!leaks(&out, &canary), "{name}\n in {text}\nout {out}");
            let encoded = base64.get(8..40).unwrap_or(&base64);
            assert!(!out.contains(encoded), "{name}: base64\n in {text}\nout {out}");
            assert_eq!(redact(&out), out, "{name}: not idempotent");
            if serde_json::from_str::<Value>(&text).is_ok() {
                serde_json::from_str::<Value>(&out).unwrap_or_else(|e| panic!("{name}: {e}: {out}"));
            }
        }
    }
}

#[test]
fn every_detector_has_a_canary_that_it_finds() {
    let all = every_form::canaries();
    for detector in detectors::all() {
        assert!(all.iter().any(|canary| canary.name == detector.name), "{} has no canary", detector.name);
    }
    for canary in all {
        // Names that gateways and people form; a flag is not part of a name.
        let prefixes: &[&str] =
            if canary.text.starts_with("--") { &[] } else { &["files__", "backup_", "a_b_"] };
        let named = prefixes.iter().flat_map(|before| {
            let name = format!("{before}{}", canary.text);
            [json!({ "name": name }).to_string(), name]
        });
        let texts = [
            canary.text.clone(),
            format!("said {} and more", canary.text),
            format!("\x1b[31m{}\x1b[0m", canary.text),
            json!({ "text": canary.text }).to_string(),
            json!({ "text": json!({ "text": canary.text }).to_string() }).to_string(),
        ];
        for text in texts.into_iter().chain(named) {
            let out = redact(&text);
            assert!(!out.contains(&canary.needle), "{}\n in {text}\nout {out}", canary.name);
            assert_eq!(redact(&out), out, "{}: not idempotent", canary.name);
        }
    }
}

#[test]
fn terminal_control_sequences_hide_no_secret() {
    let spellings = ["\x1b[31m", "\x1b[0m", "\x1b[38;2;1;2;3m", r"\x1b[31m", r"\033[0m", r"\e[1m", "^[[0m"];
    for (name, canary) in canaries() {
        let middle = canary.char_indices().nth(canary.chars().count() / 2).map_or(0, |(at, _)| at);
        for code in spellings {
            let split = |at: usize| format!("{}{code}{}", &canary[..at], &canary[at..]);
            let mut texts = vec![
                format!("{code}{canary}\x1b[0m"),
                format!("total{code}{canary}{code}done"),
                format!("found {} here", split(2)),
                format!("found {} here", split(middle)),
                format!("{code}{}{code}", split(canary.len() - 2)),
                format!("\x1b]8;;https://x.example\x1b\\{canary}\x1b]8;;\x07"),
                canary.chars().map(|c| format!("{code}{c}")).collect(),
            ];
            if code.starts_with('\x1b') {
                texts.push(canary.chars().map(|c| format!("{c}\x08{c}")).collect());
                texts.push(canary.chars().map(|c| format!("{c}\0")).collect());
            }
            for text in texts {
                let message =
                    json!({ "result": { "content": [{ "type": "text", "text": text }] } }).to_string();
                let twice = json!({ "text": message }).to_string();
                for text in [text, message, twice] {
                    let out = redact(&text);
                    let shown = String::from_utf8_lossy(&control::stripped(out.as_bytes())).into_owned();
                    assert!(!leaks(&shown, &canary), "{name} {code:?}\n in {text:?}\nout {out:?}");
                    assert!(!leaks(&out, &canary), "{name} {code:?}\n in {text:?}\nout {out:?}");
                    assert_eq!(redact(&out), out, "{name}: not idempotent");
                }
            }
        }
    }
}

#[test]
fn an_anchor_interrupted_by_colours_does_not_panic() {
    for detector in detectors::all() {
        for anchor in detector.anchors {
            for cut in 0..=anchor.len() {
                let text = format!("x\x1b[1m{}\x1b[0m{}\x1b[1m y", &anchor[..cut], &anchor[cut..]);
                let _ = redact(&text);
                let _ = redact(&json!({ "x": text }).to_string());
            }
        }
    }
}

#[test]
fn colours_without_a_secret_stay_as_they_are() {
    for text in [
        "\x1b[31merror\x1b[0m: nothing to see",
        r#"{"result":{"content":[{"type":"text","text":"\u001b[1mbold\u001b[0m and \u001b[4mmore\u001b[0m"}]}}"#,
        "\0\x08\x1b",
    ] {
        assert!(matches!(STANDARD.redact(text.as_bytes()).0, Cow::Borrowed(_)), "{text:?}");
    }
}

#[test]
fn a_coloured_name_still_marks_its_value_as_secret() {
    for text in [
        "\x1b[34;1m\"password\"\x1b[0m\x1b[1;39m: \x1b[0;32m\"c4n4ry-pw\"\x1b[0m",
        "\x1b[1mDB_PASSWORD\x1b[0m=c4n4ry-pw",
        r#"{"\u001b[1mpassword\u001b[0m":"c4n4ry-pw"}"#,
        "{\x1b[34m\"password\"\x1b[0m:\x1b[32m\"c4n4ry-pw\"\x1b[0m}",
    ] {
        let out = redact(text);
        assert!(!out.contains("c4n4ry-pw"), "{text:?}: {out:?}");
    }
    let mine = with_rules(vec![rule(
        RedactionPattern::Regex("internal-[0-9]{4}".to_owned()),
        RedactionAction::Mark,
    )]);
    for text in ["inter\x1b[1mnal-12\x1b[0m34", r#"{"a":"inter\u001b[1mnal-1234"}"#] {
        let out = mine.redact_text(text);
        assert!(!out.contains("34"), "{text:?}: {out:?}");
    }
}

#[test]
fn secrets_at_the_borders_of_parts_of_a_large_message_are_found() {
    let secret = format!("ghp_{}", "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW1xY3");
    let clean = "nothing to see here. ".repeat(60_000);
    assert!(matches!(STANDARD.redact(clean.as_bytes()).0, Cow::Borrowed(_)));
    for quarter in 0..=4 {
        for shift in 0..12 {
            let at = (clean.len() * quarter / 4 + shift).saturating_sub(6).min(clean.len());
            let text = format!("{} {secret} {}", &clean[..at], &clean[at..]);
            assert!(!leaks(&redact(&text), &secret), "at {at}");
        }
    }
}

#[test]
fn the_mark_names_the_format() {
    for (name, canary) in canaries() {
        let (_, findings) = Redactor::standard().explain(canary.as_bytes());
        let rules: Vec<&str> = findings.iter().map(|f| f.rule.as_str()).collect();
        let header = canary.starts_with("Authorization");
        assert!(
            rules.contains(&name) || header && rules == ["authorization"],
            "{name}: {rules:?} in {canary}"
        );
    }
}

#[test]
fn the_raw_check_finds_names_with_two_separators() {
    // Frameworks spell nested settings in the environment like this.
    for text in [r#"{"Api__Key":12345}"#, "API__KEY=c4n4ry-pw", r#"{"private--key":"c4n4ry-pw"}"#] {
        let out = redact(text);
        assert!(!out.contains("12345") && !out.contains("c4n4ry"), "{out}");
        assert_eq!(STANDARD.explain(text.as_bytes()).0.as_bytes(), out.as_bytes());
    }
}

#[test]
fn only_the_secret_is_replaced() {
    let url = redact(r#"{"dsn":"postgres://app:c4n4ry@db.example:5432/x?sslmode=require","n":1.50}"#);
    assert_eq!(
        url,
        r#"{"dsn":"postgres://app:[redacted:url-password]@db.example:5432/x?sslmode=require","n":1.50}"#
    );
    let field = redact("{ \"Api-Key\" : 12345 , \"b\":[ ]}");
    assert_eq!(field, "{ \"Api-Key\" : \"[redacted:api_key]\" , \"b\":[ ]}");
    let nested = redact(r#"{"secret":{"value":"abc","n":7,"ok":true,"none":null}}"#);
    assert_eq!(
        nested,
        r#"{"secret":{"value":"[redacted:secret]","n":"[redacted:secret]","ok":true,"none":null}}"#
    );
}

#[test]
fn sensitive_names_are_recognised_in_every_position() {
    for text in [
        r#"{"headers":[{"name":"Authorization","value":"c4n4ry"}]}"#,
        r#"{"env":[{"name":"DB_PASSWORD","value":"c4n4ry"}]}"#,
        r#"{"args":["--verbose","--token","c4n4ry-7","x"]}"#,
        r#"{"pairs":[["authorization","c4n4ry"]]}"#,
        r#"{"\u0070assword":"c4n4ry"}"#,
        r#"{"pass\u0077ord":"c4n4ry"}"#,
        r#"{"text":"{\"\\u0070assword\":\"c4n4ry\"}"}"#,
        r#"{"text":"{\"a\":{\"clientSecret\":\"c4n4ry\"}}"}"#,
        r#"{"text":"log: {\"password\": \"c4n4ry\"} and {\\\"password\\\": \\\"c4n4ry\\\"}"}"#,
        r#"{"pAsS_wOrD":["c4n4ry"]}"#,
        "mysql --password c4n4ry1 -h x",
        "mysql --password=c4n4ry -h x",
        "GET /x?user=a&api_key=c4n4ry&b=1",
        "password: c4n4ry",
        "  db:\n    password: 'c4n4ry'",
        "curl -H 'X-Api-Key: c4n4ry99'",
        "{'secret': 'c4n4ry'}",
        "truncated {\"password\":\"c4n4ry",
    ] {
        let out = redact(text);
        assert!(!out.contains("c4n4ry"), "{text}\n{out}");
        assert_eq!(redact(&out), out);
    }
}

#[test]
fn a_private_key_in_a_list_of_lines_is_redacted() {
    let body = "MIIEowIBAAKCAQEAc4n4ry00u5FqWmPtX8s3vZ1bQ2nYc7dKe0gHjLrT4wUaXyBz";
    let lines =
        ["-----BEGIN RSA PRIVATE KEY-----", body, body, "c4n4ry==", "-----END RSA PRIVATE KEY-----", "Zm9v"];
    let objects: Vec<Value> =
        lines.iter().enumerate().map(|(n, line)| json!({ "n": n, "type": "text", "text": line })).collect();
    let members: serde_json::Map<String, Value> =
        lines.iter().enumerate().map(|(n, line)| (format!("line{n}"), json!(line))).collect();
    let coloured = lines.map(|line| format!("\x1b[32m{line}\x1b[0m"));
    let pieces = [lines[..2].join("\n"), lines[2..].join("\n")];
    for message in [
        json!({ "lines": lines }),
        json!({ "lines": coloured }),
        json!({ "content": objects }),
        json!({ "content": [{ "text": pieces[0] }, { "text": pieces[1] }] }),
        json!({ "text": json!({ "lines": lines }).to_string() }),
        json!(members),
        json!({ "lines": lines.map(|line| format!("12\t{line}")) }),
    ] {
        let out = redact(&message.to_string());
        // In a member of another name, the short last line is not recognised.
        let is_left = if message == json!(members) { out.contains(body) } else { out.contains("c4n4ry") };
        assert!(!is_left, "{message}\n{out}");
        assert!(out.contains("Zm9v"), "what follows stays: {out}");
        assert_eq!(
            out.matches(r#""type":"text""#).count(),
            message.to_string().matches(r#""type":"text""#).count()
        );
        assert_eq!(redact(&out), out);
        assert_eq!(STANDARD.explain(message.to_string().as_bytes()).0.as_bytes(), out.as_bytes());
    }
}

#[test]
fn credentials_with_parameters_are_redacted_as_a_whole() {
    let mark = "[redacted:authorization]";
    for (text, expected) in [
        (r#"Authorization: Digest username="a", response="c4n4ry""#, format!("Authorization: Digest {mark}")),
        (
            r#"curl -H 'authorization: OAuth oauth_token="c4n4ry",oauth_signature="c4n4ry%3D"' x"#,
            format!("curl -H 'authorization: OAuth {mark}' x"),
        ),
        (
            r#"{"t":"Proxy-Authorization: Hawk id=\"a\", mac=\"c4n4ry\"\nnext"}"#,
            format!(r#"{{"t":"Proxy-Authorization: Hawk {}\nnext"}}"#, "[redacted:proxy_authorization]"),
        ),
        (
            r#"Set-Cookie: sid="c4n4ry"; HttpOnly; other="c4n4ry""#,
            "Set-Cookie: [redacted:set_cookie]".to_owned(),
        ),
        (
            r#"said Digest username="a", response="c4n4ry" twice"#,
            "said Digest [redacted:digest-credentials] twice".to_owned(),
        ),
    ] {
        assert_eq!(redact(text), expected);
        assert_eq!(redact(&expected), expected);
    }
}

#[test]
fn values_on_later_lines_in_elements_and_after_flags_are_found() {
    for text in [
        "passwd: |\n  c4n4ryabc\n",
        "a:\n  password: >-\n    c4n4ry abc\n    c4n4ry 2\n  user: b",
        "password: |2+\r\n  c4n4ry\r\n",
        "password:\n  c4n4ry",
        "- token:\n    \"c4n4ry99\"\n",
        "password = \"\"\"\nc4n4ry\"\"\"",
        "<wsse:Password Type=\"#PasswordText\">c4n4ry</wsse:Password>",
        "<dbPassword> c4n4ry </dbPassword>",
        "curl --user 'bob:c4n4ry' https://x",
        "curl -sSu \"bob:c4n4ry\" https://x",
        "curl -X POST \\\n  -ubob:c4n4ry x",
        "mysql -h x -p'c4n4ry' db",
        "/usr/bin/mysqladmin -pc4n4ry status",
        "ALTER USER x IDENTIFIED WITH caching_sha2_password BY 'c4n4ry'",
        "CREATE ROLE x LOGIN PASSWORD 'c4n4ry'",
        "machine x\n  login a\n  password c4n4ry\n",
        "default login a password c4n4ry",
        "x={&#34;apiKey&#34;: &#34;c4n4ry99&#34;}",
        "//r.example/:_auth=dXNlcjpjNG40cnktcHc=",
        "auth: dXNlcjpjNG40cnktcHc=",
        "GET /?t=ghp%5Fc4n4ryaB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0v",
        r"broken { password: |\n  c4n4ry77",
        "password: |   c4n4ry77",
        "GET /?k=-----BEGIN%20EC%20PRIVATE%20KEY-----%0Ac4n4ry%0A-----END%20EC%20PRIVATE%20KEY-----",
    ] {
        for text in [
            text.to_owned(),
            json!({ "x": text }).to_string(),
            json!({ "x": [json!({ "y": text }).to_string()] }).to_string(),
        ] {
            let out = redact(&text);
            assert!(!out.contains("c4n4ry") && !out.contains("jNG40cnk"), "{text}\n{out}");
            assert_eq!(redact(&out), out);
            assert_eq!(
                STANDARD.explain(text.as_bytes()).0.as_bytes(),
                out.as_bytes(),
                "the raw check agrees"
            );
        }
    }
}

#[test]
fn harmless_text_is_unchanged() {
    let harmless = include_str!("tests/harmless.txt");
    let blocks = include_str!("tests/harmless-blocks.txt");
    let lines: Vec<&str> =
        harmless.lines().filter(|line| !line.is_empty()).chain(blocks.split("\n---\n")).collect();
    let changed: Vec<(&&str, String)> =
        lines.iter().map(|line| (line, redact(line))).filter(|(line, out)| **line != out).collect();
    assert!(lines.len() >= 200, "{}", lines.len());
    assert!(changed.is_empty(), "{} of {}: {changed:#?}", changed.len(), lines.len());
}

#[test]
fn every_action_replaces_the_secret_as_documented() {
    let field = |action| with_rules(vec![rule(RedactionPattern::Field("card".to_owned()), action)]);
    let out = |action, text: &str| {
        let redactor = field(action);
        let once = String::from_utf8(redactor.redact(text.as_bytes()).as_bytes().to_vec()).unwrap();
        let twice = String::from_utf8(redactor.redact(once.as_bytes()).as_bytes().to_vec()).unwrap();
        assert_eq!(once, twice, "not idempotent");
        once
    };
    let text = r#"{"a":1, "card":"4111111111111234", "b":2}"#;
    assert_eq!(out(RedactionAction::Remove, text), r#"{"a":1, "b":2}"#);
    assert_eq!(out(RedactionAction::Remove, r#"{"card":1,"b":2}"#), r#"{"b":2}"#);
    assert_eq!(out(RedactionAction::Remove, r#"{"card":1,"CARD":2}"#), "{}");
    assert_eq!(
        out(RedactionAction::Remove, r#"{"a":{"x":0,"card":[1],"Card":2,"c_ard":3}}"#),
        r#"{"a":{"x":0}}"#
    );
    assert_eq!(out(RedactionAction::Replace(json!("gone")), text), r#"{"a":1, "card":"gone", "b":2}"#);
    assert_eq!(out(RedactionAction::Replace(json!({"n":0})), r#"{"card":5}"#), r#"{"card":{"n":0}}"#);
    assert_eq!(
        out(RedactionAction::Mask { visible_chars: 4 }, text),
        r#"{"a":1, "card":"[masked:1234]", "b":2}"#
    );
    assert!(out(RedactionAction::Hash, text).contains(r#""card":"[hash:"#));
    let key = RedactionAction::Encrypt { key_id: "k".to_owned(), key: RedactionKey([3; 32]) };
    assert!(out(key, text).contains(r#""card":"enc:v1:k:"#));
}

#[test]
fn paths_parameters_and_expressions_match() {
    let check = |pattern, text: &str, expected: &str| {
        let redactor = with_rules(vec![rule(pattern, RedactionAction::Mark)]);
        assert_eq!(String::from_utf8_lossy(redactor.redact(text.as_bytes()).as_bytes()), expected);
    };
    let path = |p: &str| RedactionPattern::Path(p.to_owned());
    check(
        path("$.params..note"),
        r#"{"params":{"a":[{"note":"x"}]},"note":"y"}"#,
        r#"{"params":{"a":[{"note":"[redacted:mine]"}]},"note":"y"}"#,
    );
    check(
        path("$.params[*]"),
        r#"{"params":[1,"x"]}"#,
        r#"{"params":["[redacted:mine]","[redacted:mine]"]}"#,
    );
    check(path("$.note"), r#"[{"\u006eote":"x"}]"#, r#"[{"\u006eote":"[redacted:mine]"}]"#);
    let param = |method: &str| RedactionPattern::MethodParam {
        method: method.to_owned(),
        param: "arguments.note".to_owned(),
    };
    let call = r#"{"method":"tools/call","params":{"arguments":{"note":"x"}}}"#;
    let gone = r#"{"method":"tools/call","params":{"arguments":{"note":"[redacted:mine]"}}}"#;
    check(param("tools/call"), call, gone);
    check(param("tools/*"), call, gone);
    check(param("prompts/get"), call, call);
    let regex = || RedactionPattern::Regex(r"EMP-\d+".to_owned());
    check(regex(), r#"{"a":"who is \u0045MP-12?"}"#, r#"{"a":"who is [redacted:mine]?"}"#);
    check(regex(), "EMP-1 EMP-22", "[redacted:mine] [redacted:mine]");
}

#[test]
fn every_invalid_rule_is_reported() {
    let patterns = [
        RedactionPattern::Regex("(".to_owned()),
        RedactionPattern::Field("ok".to_owned()),
        RedactionPattern::Path("$.a[".to_owned()),
        RedactionPattern::Regex("a*".to_owned()),
        RedactionPattern::Field("-".to_owned()),
    ];
    let rules = patterns.map(|p| rule(p, RedactionAction::Mark)).to_vec();
    let wrong = Redactor::new(&RedactionConfig { rules, ..RedactionConfig::default() }).unwrap_err();
    assert_eq!(wrong.iter().map(|e| e.rule).collect::<Vec<_>>(), [0, 2, 3, 4]);
    assert!(wrong[0].to_string().contains("unclosed group"), "{}", wrong[0]);
}

#[test]
fn equal_ids_have_equal_hashes() {
    let config =
        RedactionConfig { hash_ids: true, hash_key: RedactionKey([5; 32]), ..RedactionConfig::default() };
    let redactor = Redactor::new(&config).unwrap();
    let read = |text: &str| -> Value {
        serde_json::from_slice(redactor.redact(text.as_bytes()).as_bytes()).unwrap()
    };
    let asked = read(r#"{"id":7,"method":"x","params":{"userId":"anna","_meta":{"progressToken":7}}}"#);
    let answered = read(r#"{"id":7,"result":{}}"#);
    assert_eq!(asked["id"], answered["id"]);
    assert!(asked["id"].as_str().unwrap().starts_with("[hash:"));
    assert_eq!(asked["params"]["_meta"]["progressToken"], asked["id"]);
    assert_ne!(asked["params"]["userId"], "anna");
}

#[test]
fn nothing_is_redacted_when_redaction_is_off() {
    let redactor =
        Redactor::new(&RedactionConfig { redact_sensitive: false, ..RedactionConfig::default() }).unwrap();
    assert!(!redactor.redact(br#"{"password":"x"}"#).is_changed());
}

fn values() -> impl Strategy<Value = Value> {
    let secrets: Vec<String> = canaries().into_iter().map(|(_, canary)| canary).collect();
    let text = prop_oneof![
        "[ -~]{0,24}",
        "\\PC{0,12}",
        (proptest::sample::select(secrets), "[ -~]{0,8}")
            .prop_map(|(secret, rest)| format!("{rest} {secret} {rest}")),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from)
    ];
    let names = prop_oneof![
        Just("password".to_owned()),
        Just("apiKey".to_owned()),
        Just("githubToken".to_owned()),
        "[a-zA-Z_]{1,8}"
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((names.clone(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

#[test]
fn a_mark_after_a_control_sequence_is_unchanged() {
    for text in ["s://user^[[:secret@host/", "s://user\x1b[:secret@host/", "s://user\\u001b[:secret@host/"] {
        let once = redact(text);
        assert!(!once.contains("secret"), "{once}");
        assert_eq!(redact(&once), once);
    }
}

#[test]
fn ordinary_text_is_not_suspicious() {
    for text in [
        "2026-01-02T03:04:05Z INFO auth::token conn=1d2188 msg=\"token user connected\" took_us=7",
        "use crate::auth::token as secret_store; if token == other { secret::read() }",
        "the api key user asked for a token under the cookie banner",
        "step 3: token count\nnext",
    ] {
        let message =
            json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [{ "type": "text", "text": text }] } });
        assert!(!STANDARD.is_suspicious(message.to_string().as_bytes()), "{text}");
    }
}

#[test]
fn one_pass_redacts_every_password_of_a_command() {
    for (command, expected) in [
        (
            "curl -u a:hunter2hunter2 --proxy-user b:tr0ub4dor3 https://x.example",
            "curl -u a:[redacted:curl-password] --proxy-user b:[redacted:curl-password] https://x.example",
        ),
        (
            "mysql -pfirstpass1 -u root -pSecondPass2 db",
            "mysql -p[redacted:mysql-password] -u root -p[redacted:mysql-password] db",
        ),
    ] {
        assert_eq!(redact(command), expected);
        let coloured = command.replace("-u", "\u{1b}[1m-u\u{1b}[0m");
        assert!(
            !["hunter2", "tr0ub4dor3", "firstpass1", "SecondPass2"]
                .iter()
                .any(|s| redact(&coloured).contains(s))
        );
    }
}

#[test]
fn text_after_a_password_in_its_block_does_not_make_it_a_placeholder() {
    // Separated by white space other than spaces.
    for behind in ["[redacted:p", "\r\rxxxx", "call(me)"] {
        let text = format!("a: b\npassword: |\n\thunter2hunter2\n\n\t{behind}\n");
        assert!(!redact(&text).contains("hunter2"), "{text}");
        assert!(!redact(&json!({ "text": text }).to_string()).contains("hunter2"), "{text}");
    }
}

#[test]
fn an_element_is_found_however_its_tag_is_written() {
    for open in ["<password id=\"1\">", "<s:password id=\"1\">", "<s :password\n>"] {
        // Closed by another tag: the raw check only examines the opening tag.
        let text = format!("{open}hunter2hunter2</x>");
        for raw in
            [json!({ "text": text }).to_string(), json!({ "text": text }).to_string().replace('<', r"\u003C")]
        {
            assert!(!redact(&raw).contains("hunter2"), "{raw}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn redacted_json_is_valid_and_redaction_is_idempotent(value in values(), nested in any::<bool>()) {
        let text = if nested { json!({ "text": value.to_string() }).to_string() } else { value.to_string() };
        let out = redact(&text);
        prop_assert!(serde_json::from_str::<Value>(&out).is_ok(), "{}", out);
        prop_assert_eq!(&redact(&out), &out);
    }

    #[test]
    fn nothing_changes_outside_matches(text in "[ -~\n]{0,200}") {
        let redactor = &*STANDARD;
        let (out, _) = redactor.explain(text.as_bytes());
        let edits = redactor.edits(text.as_bytes(), 0, false);
        let mut at = 0;
        let mut from = 0;
        for edit in &edits {
            let kept = edit.range.start - from;
            prop_assert_eq!(&out.as_bytes()[at..at + kept], &text.as_bytes()[from..edit.range.start]);
            at += kept + edit.with.len();
            from = edit.range.end;
        }
        prop_assert_eq!(&out.as_bytes()[at..], &text.as_bytes()[from..]);
        prop_assert_eq!(redactor.redact(text.as_bytes()), out, "the raw check agrees");
    }

#[test]
    fn the_raw_check_agrees_with_the_full_search(value in values()) {
        let text = value.to_string();
        let redactor = &*STANDARD;
        prop_assert_eq!(redactor.redact(text.as_bytes()), redactor.explain(text.as_bytes()).0);
    }
}
