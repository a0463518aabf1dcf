//! Passwords of generators and of people: with every symbol, in every notation.

use base64::Engine;
use serde_json::{Value, json};

use super::{STANDARD, redact};
use crate::redact::{RedactionConfig, Redactor};

/// Checks that a canary is removed from a text, alone and in messages, and that the raw check agrees with the full
/// search.
fn check_gone(text: &str, is_left: impl Fn(&str) -> bool) {
    for text in [
        text.to_owned(),
        json!({ "result": { "content": [{ "type": "text", "text": text }] } }).to_string(),
        json!({ "x": json!({ "y": text }).to_string() }).to_string(),
    ] {
        let out = redact(&text);
        assert!(!is_left(&out), "{text}\n{out}");
        assert_eq!(redact(&out), out, "twice is once");
        assert_eq!(STANDARD.explain(text.as_bytes()).0.as_bytes(), out.as_bytes(), "the raw check agrees");
        if serde_json::from_str::<Value>(&text).is_ok() {
            assert!(serde_json::from_str::<Value>(&out).is_ok(), "{out}");
        }
    }
}

#[test]
fn a_password_with_symbols_is_not_a_placeholder() {
    for password in [
        "@dm1nc4n4ry",
        "$c4n4ryZq8",
        "*c4n4ry9",
        "{c4n4ry9",
        "{c4n4ry9}",
        "[c4n4ry9",
        "(c4n4ry9",
        "c4n4ry(x9",
        "c4n4(ry)9",
        "c4n4ry::x9",
        "c4n4ry->x9",
        "c4n4ryxxxx1",
        "your_c4n4ry",
        "c4n4ry...9",
        "c4n4ry****",
        "#c4n4ry9",
        "%c4n4ry",
        "c4n4ry{{x",
        "-c4n4ry9",
        "c4n4ry9!redacted",
        "${x}c4n4ry",
    ] {
        let is_left = |out: &str| out.contains("c4n4ry") || out.contains("c4n4(");
        for text in [
            format!("DB_PASSWORD={password}"),
            format!("env: DB_PASSWORD={password} PORT=1"),
            format!("password={password}"),
            format!("password: \"{password}\""),
            format!("password = '{password}'"),
            format!("x {{\"DB_PASSWORD\": \"{password}\"}}"),
            json!({ "DB_PASSWORD": password }).to_string(),
            format!("CREATE USER a IDENTIFIED BY '{password}'"),
            format!("mysql -u root -p'{password}' db"),
            format!("curl -u 'bob:{password}' https://x.example"),
            format!("<password>{password}</password>"),
            format!("<password><![CDATA[{password}]]></password>"),
        ] {
            check_gone(&text, is_left);
        }
    }
    for text in [
        "--password @c4n4ry9",
        "GET https://x.example/?password=@c4n4ry9&a=1",
        "password: |\n  @c4n4ry9",
        "password:\n  $c4n4ryZq8",
        "Server=x;Uid=sa;Pwd={c4n4ry9};",
        // The bracket of the password closes after its quote.
        r#"x {"user": "a", "password": "{c4nary"}"#,
        r#"x ["DB_PASSWORD=[c4nary","x"]"#,
    ] {
        check_gone(text, |out| out.contains("c4n4ry") || out.contains("c4nary"));
    }
}

#[test]
fn a_word_in_a_variable_or_setting_is_not_a_placeholder() {
    for text in [
        "DB_PASSWORD=c4narymonkey",
        "DB_PASSWORD=c4nary.horse",
        "DB_PASSWORD=c4narysecret",
        "password=canarymonkey",
        r#"{"DB_PASSWORD":"canarysecret"}"#,
        "[mysql]\npassword = canaryswordfish\nport = 3306",
        "  passwd = canaryswordfish",
    ] {
        check_gone(text, |out| out.contains("c4nary") || out.contains("canary"));
    }
}

#[test]
fn a_value_that_is_a_whole_word_includes_separators() {
    for separator in [",", ";", "&", "|", ")", "<", ">", "}", "]"] {
        for text in [
            format!("DB_PASSWORD=ab{separator}c4n4ry"),
            format!("docker run -e DB_PASSWORD=ab9{separator}c4n4ry img"),
            format!("run('DB_PASSWORD=ab9{separator}c4n4ry', 1)"),
            format!("a=b\npassword=ab{separator}c4n4ry\nc=d"),
            format!("a: b\n  password: ab9{separator}c4n4ry\nc: d"),
            format!("[x]\npassword = ab9{separator}c4n4ry\n"),
        ] {
            check_gone(&text, |out| out.contains("c4n4ry"));
        }
    }
    assert_eq!(redact("(PASSWORD=c4n4ry, USER=anna)"), "(PASSWORD=[redacted:password], USER=anna)");
    assert_eq!(redact("x PASSWORD=c4n4ry, USER=anna"), "x PASSWORD=[redacted:password], USER=anna");
    assert_eq!(redact("password=c4n4ry&user=anna"), "password=[redacted:password]&user=anna");
}

#[test]
fn values_with_special_characters_are_redacted_as_a_whole() {
    for text in [
        "postgres://u:pa#c4n4ry@db.example/x",
        "postgres://u:pa<c4n4ry@db.example/x",
        "postgres://u:pa'c4n4ry@db.example/x",
        "postgres://u:pa/x@c4n4ry@db.example/x",
        "postgres://u:{c4n4ry9}@db.example/x",
        "CREATE USER a IDENTIFIED BY 'x9''c4n4ry'",
        r"CREATE USER a IDENTIFIED BY 'x9\'c4n4ry'",
        "curl --proxy-user=bob:c4n4ry http://x.example",
        "curl --user='bob:c4n4ry' http://x.example",
        "curl -sSubob:c4n4ry http://x.example",
        "password:                    c4n4ry",
        "password                     : c4n4ry",
    ] {
        check_gone(text, |out| out.contains("c4n4ry"));
    }
    assert_eq!(
        redact("CREATE USER a IDENTIFIED BY 'c4''n4ry' ACCOUNT LOCK COMMENT 'x'"),
        "CREATE USER a IDENTIFIED BY '[redacted:sql-password]' ACCOUNT LOCK COMMENT 'x'"
    );
}

#[test]
fn a_colon_inside_a_mark_does_not_separate_user_and_password() {
    for text in [
        "http://PASSWORD=abc,x:pw@host",
        "http://PASSWORD=Buse'r:pw@host/x",
        "curl -u PASSWORD=abc9'x:pw99",
        "curl -u x,PASSWORD=abc,x:pw99",
        "curl -u PASSWORD=$a:,abc\u{1b}[m",
    ] {
        check_gone(text, |out| out.contains("abc") || out.contains("Buse"));
    }
}

#[test]
fn wrapped_base64_is_redacted_with_any_line_ends() {
    let token = format!("ghp_{}", "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW1xY3");
    // Forms are recognised within a line only.
    let is_within_line = |before: &usize| (before + 1) * 8 / 6 / 64 == (before + 5) * 8 / 6 / 64;
    for before in (0..80).filter(is_within_line) {
        let data = format!("{} {token} and more behind it", "x".repeat(before));
        let digits = base64::engine::general_purpose::STANDARD.encode(data);
        for end in ["\n", "\r\n", "\n    ", "\r\n\t"] {
            let lines: Vec<String> =
                digits.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
            check_gone(&format!("blob:{end}{}{end}", lines.join(end)), |out| {
                lines.iter().any(|line| out.contains(line))
            });
        }
    }
}

#[test]
fn sensitive_names_are_found_in_base64() {
    for text in [
        r#"{"apikey":"c4n4ryZq8c4n4ryZq8"}"#,
        r#"{"user":"anna","pwd":"c4n4ryZq8"}"#,
        "X-Api-Key: c4n4ryZq8c4n4ry",
        "user=anna passwd=c4n4ryZq8",
        "passphrase: c4n4ryZq8c4n4ry",
    ] {
        for before in ["", "a ", "ab "] {
            let digits = base64::engine::general_purpose::STANDARD.encode(format!("{before}{text}"));
            check_gone(&format!("blob {digits}"), |out| out.contains(&digits[..16]));
        }
    }
}

#[test]
fn a_form_encoded_private_key_is_redacted() {
    for text in [
        "k=-----BEGIN+RSA+PRIVATE+KEY-----%0AMIIEc4n4ry%2Bab%0A-----END+RSA+PRIVATE+KEY-----%0A&b=1",
        "k=-----BEGIN+RSA+PRIVATE+KEY-----%0AMIIEab%2Fc4n4ry",
    ] {
        check_gone(text, |out| out.contains("c4n4ry"));
    }
}

#[test]
fn a_name_listed_by_the_user_has_no_harmless_meaning() {
    let fields = ["token", "pwd"].map(str::to_owned).to_vec();
    let config = RedactionConfig { sensitive_fields: fields, ..RedactionConfig::default() };
    let redactor = Redactor::new(&config).unwrap();
    for text in [r#"{"token":1234}"#, "token: 23.5ms", "PWD=/home/anna", r#"{"pwd":"/home/anna"}"#] {
        assert!(redactor.redact(text.as_bytes()).is_changed(), "{text}");
        assert_eq!(redact(text), text);
    }
    for text in
        [r#"{"token":1234567890}"#, "token: 482913", "PWD=/x9Kd3", r#"{"pwd":"/srv/aB3dE5fG7hI9jK1l"}"#]
    {
        assert_ne!(redact(text), text);
    }
}

#[test]
fn combined_flags_are_no_longer_than_the_raw_check_reads() {
    for letters in 0..24 {
        for flag in ["u", "U", "U ", "u "] {
            let text = format!("curl -{}{flag}bob:c4n4ry9 x", "s".repeat(letters));
            assert_eq!(STANDARD.redact(text.as_bytes()), STANDARD.explain(text.as_bytes()).0, "{text}");
        }
    }
    let found = include_bytes!("../../../../../fuzz/corpus/redaction/many-flags-in-one-word");
    assert_eq!(STANDARD.redact(found), STANDARD.explain(found).0);
}
