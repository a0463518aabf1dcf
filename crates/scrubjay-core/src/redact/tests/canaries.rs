//! A secret of every recognised format, assembled here so that no scanner takes this file for a leak.
//!
//! Shared by the tests of redaction and by those that search the files of a whole run for leaks.

/// An invented secret.
#[derive(Clone, Debug)]
pub(crate) struct Canary {
    /// The detector of its format.
    pub(crate) name: &'static str,
    /// The secret, with the context that identifies it.
    pub(crate) text: String,
    /// The part that must not be found anywhere.
    pub(crate) needle: String,
}

/// Returns random characters of an alphabet, the same for the same seed.
fn random(alphabet: &[u8], seed: usize, length: usize) -> String {
    let mut state = seed as u64 * 0x9e37_79b9 + 7;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 40).unwrap_or(0)
    };
    (0..length).map(|_| char::from(alphabet[next() % alphabet.len()])).collect()
}

const ALNUM: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const HEX: &[u8] = b"0123456789abcdef";

/// Tokens with a prefix: the detector, the prefix, and the alphabet and length of the rest.
const TOKENS: &[(&str, &str, &[u8], usize)] = &[
    ("aws-access-key", "AKIA", UPPER, 16),
    ("aws-access-key", "ASIA", UPPER, 16),
    ("google-api-key", "AIza", ALNUM, 35),
    ("google-oauth-token", "ya29.", ALNUM, 60),
    ("google-oauth-secret", "GOCSPX-", ALNUM, 28),
    ("digitalocean-token", "dop_v1_", HEX, 64),
    ("alibaba-access-key", "LTAI", ALNUM, 20),
    ("cloudflare-ca-key", "v1.0-", ALNUM, 140),
    ("terraform-token", "Ab3dEf6hIj9kLm.atlasv1.", ALNUM, 67),
    ("vault-token", "hvs.", ALNUM, 90),
    ("doppler-token", "dp.pt.", ALNUM, 43),
    ("pulumi-token", "pul-", HEX, 40),
    ("age-secret-key", "AGE-SECRET-KEY-1", UPPER, 58),
    ("fly-token", "fo1_", ALNUM, 43),
    ("databricks-token", "dapi", HEX, 32),
    ("azure-storage-key", "AccountName=a;AccountKey=", ALNUM, 86),
    ("azure-sas-signature", "https://a.example/c?sv=2022-11-02&sig=", ALNUM, 43),
    ("github-token", "ghp_", ALNUM, 36),
    ("github-token", "github_pat_", ALNUM, 82),
    ("gitlab-token", "glpat-", ALNUM, 20),
    ("bitbucket-token", "ATBB", ALNUM, 32),
    ("npm-token", "npm_", ALNUM, 36),
    ("pypi-token", "pypi-AgE", ALNUM, 160),
    ("rubygems-key", "rubygems_", HEX, 48),
    ("docker-token", "dckr_pat_", ALNUM, 27),
    ("sourcegraph-token", "sgp_", HEX, 40),
    ("jetbrains-token", "perm:", ALNUM, 80),
    ("atlassian-token", "ATATT3", ALNUM, 180),
    ("postman-key", "PMAK-", HEX, 59),
    ("linear-key", "lin_api_", ALNUM, 40),
    ("anthropic-key", "sk-ant-api03-", ALNUM, 95),
    ("openai-key", "sk-", ALNUM, 48),
    ("openai-key", "sk-proj-", ALNUM, 120),
    ("huggingface-token", "hf_", ALNUM, 34),
    ("replicate-token", "r8_", ALNUM, 37),
    ("groq-key", "gsk_", ALNUM, 52),
    ("xai-key", "xai-", ALNUM, 80),
    ("perplexity-key", "pplx-", ALNUM, 48),
    ("tavily-key", "tvly-", ALNUM, 32),
    ("langsmith-key", "lsv2_pt_", HEX, 43),
    ("stripe-key", "sk_live_", ALNUM, 24),
    ("stripe-webhook-secret", "whsec_", ALNUM, 32),
    ("square-token", "sq0atp-", ALNUM, 22),
    ("square-token", "EAAA", ALNUM, 60),
    ("shopify-token", "shpat_", HEX, 32),
    ("plaid-token", "access-sandbox-", HEX, 36),
    ("razorpay-key", "rzp_live_", ALNUM, 14),
    ("paypal-token", "access_token$production$", ALNUM, 48),
    ("slack-token", "xoxb-", ALNUM, 50),
    ("slack-token", "xoxe.xoxp-", ALNUM, 50),
    ("slack-webhook", "https://hooks.slack.com/services/T00000000/", ALNUM, 36),
    ("discord-webhook", "https://discord.com/api/webhooks/123456789012345678/", ALNUM, 68),
    ("telegram-token", "123456789:AA", ALNUM, 33),
    ("sendgrid-key", "SG.", ALNUM, 66),
    ("mailgun-key", "key-", HEX, 32),
    ("mailchimp-key", "xkeysib-", HEX, 80),
    ("newrelic-key", "NRAK-", UPPER, 27),
    ("sentry-token", "sntrys_", ALNUM, 120),
    ("grafana-token", "glsa_", ALNUM, 41),
    ("notion-token", "ntn_", ALNUM, 46),
    ("figma-token", "figd_", ALNUM, 40),
    ("facebook-token", "EAACEdEose0cBA", ALNUM, 100),
    ("dynatrace-token", "dt0c01.", UPPER, 89),
    ("planetscale-token", "pscale_tkn_", ALNUM, 43),
    ("supabase-key", "sbp_", HEX, 40),
    ("tailscale-key", "tskey-auth-", ALNUM, 40),
    ("ngrok-token", "ngrok_", ALNUM, 48),
    ("url-password", "postgres://app:", ALNUM, 20),
    ("url-password", "url=postgres%3A%2F%2Fapp%3A", ALNUM, 20),
    ("bearer-token", "Authorization: Bearer ", ALNUM, 40),
    ("digest-credentials", "Digest username=\"a\", realm=\"b\", response=\"", HEX, 32),
    ("authorization", "Proxy-Authorization: Hawk id=\"a\", ts=1, mac=\"", ALNUM, 32),
    ("curl-password", "curl -s -u bob:", ALNUM, 20),
    ("mysql-password", "mysqldump -u root -p", ALNUM, 20),
    ("sql-password", "CREATE USER a IDENTIFIED BY '", ALNUM, 20),
    ("sql-password", "ALTER ROLE a WITH PASSWORD '", ALNUM, 20),
    ("netrc-password", "machine h.example login a password ", ALNUM, 20),
    ("password", "q=%7B%22password%22%3A%22", ALNUM, 18),
    ("password", "<password>", ALNUM, 18),
    ("password", "&quot;password&quot;:&quot;", ALNUM, 18),
    ("password", "password: |\n  ", ALNUM, 18),
    ("secret_key_base", "SECRET_KEY_BASE=", HEX, 64),
    ("password", "password=", ALNUM, 18),
    ("telling-name", "APP_DB_PASSWORD=", ALNUM, 18),
    ("api_key", "{\"apiKey\":\"", ALNUM, 26),
    ("token", "--token ", ALNUM, 26),
    ("cookie", "Cookie: sid=", ALNUM, 26),
];

/// Returns a secret of each format.
pub(crate) fn canaries() -> Vec<Canary> {
    let mut all = Vec::new();
    let mut add = |name: &'static str, alphabet: &[u8], length: usize, around: &dyn Fn(&str) -> String| {
        let body = random(alphabet, all.len() + 1, length);
        // A prefix is enough to find a leak, also of a part.
        let needle = body[..length.min(14)].to_owned();
        all.push(Canary { name, text: around(&body), needle });
    };
    for (name, before, alphabet, length) in TOKENS {
        let behind = match *before {
            "postgres://app:" => "@db.example/x",
            "url=postgres%3A%2F%2Fapp%3A" => "%40db.example",
            "{\"apiKey\":\"" => "\"}",
            "AccountName=a;AccountKey=" => "==",
            "curl -s -u bob:" => " https://x.example",
            "mysqldump -u root -p" => " x",
            "q=%7B%22password%22%3A%22" => "%22%7D",
            "<password>" => "</password>",
            "&quot;password&quot;:&quot;" => "&quot;",
            sql if sql.ends_with('\'') => "'",
            header if header.ends_with("=\"") => "\"",
            _ => "",
        };
        add(name, alphabet, *length, &|body| format!("{before}{body}{behind}"));
    }
    add("jwt", ALNUM, 43, &|body| format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{body}"));
    add("private-key", ALNUM, 64, &|body| {
        format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----")
    });
    add("private-key", ALNUM, 64, &|body| {
        format!("[\"-----BEGIN RSA PRIVATE KEY-----\",\"{body}\",\"-----END RSA PRIVATE KEY-----\"]")
    });
    add("private-key", ALNUM, 64, &|body| format!("Private-Lines: 1\n{body}\nPrivate-MAC: 00"));
    let pair = random(ALNUM, 777, 18);
    let coded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("user:{pair}"));
    all.push(Canary {
        name: "basic-credentials",
        text: format!("Authorization: Basic {coded}"),
        needle: coded[8..22].to_owned(),
    });
    let pair = random(ALNUM, 778, 18);
    let coded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("user:{pair}"));
    all.push(Canary {
        name: "telling-name",
        text: format!("{{\"auths\":{{\"registry.example\":{{\"auth\":\"{coded}\"}}}}}}"),
        needle: coded[8..22].to_owned(),
    });
    all
}
