//! Tests of all layers together: which value wins, who may set it, and what is reported.

use std::fs;

use scrubjay_gateway::config::Naming;
use serde_json::json;

use scrubjay_tape::home::Home;

use super::*;
use crate::section;

/// A home directory and a project for one test.
struct Lab {
    directory: tempfile::TempDir,
    variables: Vec<(String, String)>,
    flags: Vec<Flag>,
    config: Option<PathBuf>,
    env_file: Option<PathBuf>,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("project")).unwrap();
        let home = directory.path().join("home").to_string_lossy().into_owned();
        let variables = vec![("HOME".to_owned(), home)];
        Self { directory, variables, flags: Vec::new(), config: None, env_file: None }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn user(self, text: &str) -> Self {
        self.write("home/.config/scrubjay/config.yaml", text);
        self
    }

    fn project(self, text: &str) -> Self {
        self.write("project/scrubjay.yaml", text);
        self
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn flag(mut self, name: &'static str, key: &'static str, value: &str) -> Self {
        self.flags.push(Flag { name, key, value: value.to_owned() });
        self
    }

    fn loader(&self) -> Loader {
        let pairs: Vec<(&str, &str)> = self.variables.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        Loader::new(Sources {
            directory: self.at("project"),
            environment: Environment::of(&pairs),
            config: self.config.clone(),
            env_file: self.env_file.clone(),
            flags: self.flags.clone(),
            tell: |_| (),
        })
        .ok()
        .unwrap()
    }

    fn load(&self) -> Loaded {
        self.loader().load().map_err(|e| format!("{e:#} {:?}", reported(&e))).ok().unwrap()
    }

    fn problems(&self) -> Vec<String> {
        reported(&self.loader().load().err().unwrap())
    }

    /// Returns the problems once the project's file is trusted.
    fn problems_if_trusted(&self) -> Vec<String> {
        self.trust();
        self.problems()
    }

    fn trust(&self) {
        let file = project::find(&self.at("project")).unwrap();
        self.loader().trust_store().unwrap().trust(&file).unwrap();
    }

    /// Returns a value and its origin, without the temporary directory's name.
    fn shown(&self, key: &str) -> (String, String) {
        let loaded = self.load();
        let shown = loaded.shown().into_iter().find(|s| s.key == key).unwrap();
        let value = shown.value.as_str().map_or_else(|| shown.value.to_string(), str::to_owned);
        let root = format!("{}/", self.at("").display()).replace("//", "/");
        (value.replace(&root, ""), shown.origin.replace(&root, ""))
    }
}

fn reported(error: &anyhow::Error) -> Vec<String> {
    let problems = error.downcast_ref::<ConfigError>().map(|e| e.problems.clone()).unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

/// Checks that the first of some texts contains certain words.
fn says(texts: &[String], words: &str) {
    assert!(texts.first().is_some_and(|text| text.contains(words)), "{words} is not in {texts:?}");
}

fn pair(value: &str, origin: &str) -> (String, String) {
    (value.to_owned(), origin.to_owned())
}

/// Returns the problems of a configuration of one file.
pub(crate) fn problems(text: &str) -> Vec<String> {
    Lab::new().user(text).problems()
}

/// Checks the problems of a configuration of one file, each from its line on: `:2: log_level must be …`.
pub(crate) fn check_problems(text: &str, expected: &[&str]) {
    let found = problems(text);
    let found: Vec<&str> = found.iter().map(|problem| problem.split_once(".yaml").unwrap().1).collect();
    assert_eq!(found, expected);
}

pub(crate) fn loaded(text: &str) -> Loaded {
    Lab::new().user(text).load()
}

const BACKEND: &str = "backends: [{ id: a, type: stdio, command: a }]\n";

#[test]
fn later_layers_win() {
    let mut lab = Lab::new();
    assert_eq!(lab.shown("log_level"), pair("info", "default"));
    lab = lab.user("log_level: trace\n");
    assert_eq!(lab.shown("log_level"), pair("trace", "home/.config/scrubjay/config.yaml:1"));
    lab = lab.project("\nlog_level: debug\n");
    assert_eq!(lab.shown("log_level").0, "trace", "nobody trusted it");
    lab.trust();
    assert_eq!(lab.shown("log_level"), pair("debug", "project/scrubjay.yaml:2"));
    let with_options = |lab: &Lab| lab.load().with_options(&json!({"logLevel": "warn"})).ok().unwrap();
    assert_eq!(with_options(&lab).log_level(), LogLevel::Warn);
    lab = lab.set("LOG_LEVEL", "error");
    assert_eq!(lab.shown("log_level"), pair("error", "$LOG_LEVEL"));
    assert_eq!(with_options(&lab).log_level(), LogLevel::Error);
    lab = lab.flag("--log-level", "log_level", "silent");
    assert_eq!(lab.shown("log_level"), pair("silent", "--log-level"));
}

#[test]
fn the_users_file_is_found_through_xdg() {
    let lab = Lab::new().user("log_level: trace");
    let config = lab.write("xdg/scrubjay/config.yaml", "log_level: debug");
    let xdg = config.parent().unwrap().parent().unwrap().to_string_lossy().into_owned();
    assert_eq!(lab.set("XDG_CONFIG_HOME", &xdg).load().log_level(), LogLevel::Debug);
}

#[test]
fn a_file_named_by_config_replaces_the_others_and_needs_no_trust() {
    let mut lab = Lab::new().user("log_level: trace").project("log_level: debug");
    lab.config = Some(lab.write("other/mine.yaml", BACKEND));
    let loaded = lab.load();
    assert_eq!(loaded.log_level(), LogLevel::Info);
    assert_eq!(loaded.backends().len(), 1);
    assert_eq!(loaded.files.len(), 1);
    lab.config = Some(lab.at("nowhere.yaml"));
    assert!(lab.loader().load().err().unwrap().to_string().contains("nowhere.yaml"));
}

#[test]
fn the_options_of_a_client_replace_the_backends() {
    let lab = Lab::new().user(BACKEND);
    let options =
        json!({"backends": [{"id": "b", "type": "stdio", "command": "b"}], "OPENAI_API_KEY": "sk-123456"});
    let loaded = lab.load().with_options(&options).ok().unwrap();
    let ids: Vec<&str> = loaded.backends().iter().map(|b| b.id.as_str()).collect();
    assert_eq!(ids, ["b"]);
    assert_eq!(loaded.secrets(), ["sk-123456"]);
    let unchanged = lab.load().with_options(&json!(null)).ok().unwrap();
    assert_eq!(unchanged.backends()[0].id, "a");
    let problems = lab.load().with_options(&json!({"backends": [{}], "DEBUG_PORT": 0})).err().unwrap();
    let data = serde_json::to_value(&problems).unwrap();
    assert_eq!(data[0], json!({"path": "backends[0].type", "message": "is required"}));
    assert_eq!(data.as_array().unwrap().len(), 3);
}

#[test]
fn an_untrusted_project_file_has_no_effect() {
    let lab = Lab::new().user("serve: { http: '127.0.0.1:1' }").project(&format!(
        "log_level: debug\ndata: ./here\n{BACKEND}serve: {{ http: '0.0.0.0:80', auth_token: abc, auth_token_file: x,\n\
         allowed_hosts: [evil.example], allowed_origins: ['https://evil.example'], naming: always }}\n"
    ));
    let loaded = lab.load();
    assert!(loaded.backends().is_empty());
    let serve = loaded.serve_config().unwrap();
    let http = serve.http.unwrap();
    assert_eq!(http.address.to_string(), "127.0.0.1:1");
    assert!(http.auth_tokens.is_empty() && http.allowed_hosts.is_empty() && http.allowed_origins.is_empty());
    assert!(loaded.home().unwrap().root().ends_with("home/.local/share/scrubjay"));
    assert_eq!(loaded.log_level(), LogLevel::Info);
    assert_eq!(serve.naming, Naming::WhereNeeded);
    let keys = "log_level, data, serve.http, serve.auth_token, serve.auth_token_file, serve.allowed_hosts, \
                serve.allowed_origins, serve.naming, backends";
    assert_eq!(loaded.notices.len(), 1);
    says(&loaded.notices, keys);
    says(&loaded.notices, "`scrubjay trust`");
}

#[test]
fn trust_applies_to_one_content() {
    let lab = Lab::new().project(BACKEND);
    assert!(lab.load().backends().is_empty());
    lab.trust();
    let loaded = lab.load();
    assert_eq!(loaded.backends().len(), 1);
    assert!(loaded.notices.is_empty(), "{:?}", loaded.notices);
    let lab = lab.project(&format!("{BACKEND}#"));
    assert!(lab.load().backends().is_empty());
    let lab = lab.project(BACKEND);
    assert_eq!(lab.load().backends().len(), 1);
    let file = lab.at("project/scrubjay.yaml");
    assert!(lab.loader().trust_store().unwrap().revoke(&file).unwrap());
    assert!(lab.load().backends().is_empty());
}

#[test]
fn a_project_cannot_bring_its_own_list_of_trusted_files() {
    // A list of trusted files inside the project, and every way for the project to point at it.
    let mut lab = Lab::new().project(&format!("data: ./evil\n{BACKEND}"));
    let file = project::find(&lab.at("project")).unwrap();
    TrustStore::new(Home::new(lab.at("project/evil"))).trust(&file).unwrap();
    assert!(lab.load().backends().is_empty());
    let evil = lab.at("project/evil").display().to_string();
    lab.env_file = Some(
        lab.write("project/.env", &format!("SCRUBJAY_DATA={evil}\nXDG_DATA_HOME={evil}\nHOME={evil}\n")),
    );
    assert!(lab.load().backends().is_empty());
    let lab = lab.user("data: ${ELSEWHERE:-mine}");
    lab.write("project/.env", &format!("ELSEWHERE={evil}\n"));
    assert!(lab.load().backends().is_empty());
    lab.trust();
    assert_eq!(lab.load().backends().len(), 1);
}

#[test]
fn a_damaged_list_of_trusted_files_trusts_nothing() {
    let lab = Lab::new().project(BACKEND);
    lab.trust();
    lab.write("home/.local/share/scrubjay/trust.json", "{");
    assert!(lab.load().backends().is_empty());
    says(&lab.load().notices, "damaged");
}

#[test]
fn a_linked_project_file_is_not_used() {
    let lab = Lab::new();
    lab.write("elsewhere.yaml", "log_level: debug");
    std::os::unix::fs::symlink(lab.at("elsewhere.yaml"), lab.at("project/scrubjay.yaml")).unwrap();
    let loaded = lab.load();
    assert_eq!(loaded.log_level(), LogLevel::Info);
    says(&loaded.notices, "is not used: it is a symbolic link");
    let state = serde_json::to_value(&loaded.files[1]).unwrap();
    assert_eq!((&state["state"], &state["why"]), (&json!("refused"), &json!("it is a symbolic link")));
}

#[test]
fn the_progress_trackers_file_is_a_project_file() {
    let lab = Lab::new();
    lab.write("project/agent-progress.config.json", r#"{"logging": {"level": "debug"}, "dbPath": "x"}"#);
    let loaded = lab.load();
    assert_eq!(loaded.log_level(), LogLevel::Info);
    says(&loaded.notices, "used without log_level, storage");
    says(&loaded.notices, "scrubjay trust");
}

#[test]
fn variables_expand_in_every_file_and_unset_ones_are_reported() {
    let lab = Lab::new()
        .user("serve: { auth_token: '${TOKEN}' }\nlog_level: ${LEVEL:-warn}\n")
        .set("TOKEN", "t0p-s3cret");
    let loaded = lab.load();
    assert_eq!(loaded.log_level(), LogLevel::Warn);
    assert_eq!(loaded.secrets(), ["t0p-s3cret"]);
    let lab = lab.project("limits:\n  max_tape_size: ${NOBODY}\n");
    let wanted = "scrubjay.yaml:2: limits.max_tape_size needs the variable NOBODY";
    says(&lab.problems_if_trusted(), wanted);
}

#[test]
fn an_ignored_key_needs_no_variables() {
    let lab = Lab::new().project("backends: [{ id: a, type: stdio, command: '${NOBODY}' }]\n");
    assert!(lab.load().backends().is_empty());
    says(&lab.problems_if_trusted(), "backends[0].command needs the variable NOBODY");
}

#[test]
fn a_problem_does_not_show_the_value_of_a_variable() {
    let lab = Lab::new().project("log_level: ${API_KEY}\n").set("API_KEY", "t0p-s3cret");
    // A notice about an untrusted file does not show it either.
    assert!(!lab.load().notices.concat().contains("s3cret"));
    let problems = lab.problems_if_trusted();
    says(&problems, "log_level");
    assert!(!problems.concat().contains("s3cret"), "{problems:?}");
}

#[test]
fn problems_of_all_layers_are_reported_together() {
    let lab = Lab::new()
        .user("log_levle: info\n")
        .project("limits: { max_message_size: 1 }\n")
        .set("SCRUBJAY_DURABILITY", "eternal")
        .flag("--http", "serve.http", "80");
    let problems = lab.problems_if_trusted();
    assert_eq!(problems.len(), 4, "{problems:?}");
    for (problem, words) in
        problems.iter().zip(["log_levle", "max_message_size", "--http: ", "$SCRUBJAY_DURABILITY: "])
    {
        assert!(problem.contains(words), "{problem}");
    }
}

#[test]
fn the_environment_wins_over_an_environment_file() {
    let mut lab = Lab::new().set("SCRUBJAY_LOG_LEVEL", "error");
    lab.env_file = Some(lab.write("dev.env", "SCRUBJAY_LOG_LEVEL=trace\nSCRUBJAY_DURABILITY=power\nX=1\n"));
    assert_eq!(lab.load().log_level(), LogLevel::Error);
    assert_eq!(lab.shown("durability"), pair("power", "dev.env:2 (SCRUBJAY_DURABILITY)"));
    let lab = lab.user("limits: { max_tape_size: '${X}MB' }");
    assert_eq!(lab.load().limits().tape_bytes_max, 1_000_000);
}

#[test]
fn the_data_directory_is_found_despite_other_mistakes() {
    let data = |lab: &Lab| {
        let mut notices = Vec::new();
        let home = lab
            .loader()
            .data(&mut notices)
            .map(|home| home.root().strip_prefix(lab.at("")).unwrap().to_string_lossy().into_owned());
        (home.map_err(|e| reported(&e)), notices)
    };
    let lab = Lab::new();
    assert_eq!(data(&lab), (Ok("home/.local/share/scrubjay".to_owned()), vec![]));
    // An untrusted project file cannot set the directory, and does no harm if it cannot be parsed.
    let lab = lab.project("data: ./here\nlogs: [\n");
    assert_eq!(data(&lab).0, Ok("home/.local/share/scrubjay".to_owned()));
    let lab = lab.project("data: ./here\nlogs: 1\n");
    let (found, notices) = data(&lab);
    assert_eq!(found, Ok("home/.local/share/scrubjay".to_owned()));
    says(&notices, "without data");
    // Loading everything gives the same notice, unless a variable or a flag names the directory.
    let lab = lab.project("data: ./here\n");
    assert_eq!(lab.load().data_notice, data(&lab).1.into_iter().next());
    says(lab.load().data_notice.as_slice(), "without data");
    let named = Lab::new().project("data: ./here\n").set("SCRUBJAY_DATA", "of-env");
    assert_eq!(named.load().data_notice, None);
    let lab = lab.project("data: ./here\nlogs: 1\n");
    lab.trust();
    assert_eq!(data(&lab).0, Ok("project/here".to_owned()));
    // A problem of the owner's own file is an error.
    let lab = lab.user("data: ../mine\nlogs: 1\n");
    assert_eq!(data(&lab).0.unwrap_err().len(), 1);
    // If a variable or a flag names the directory, no file is read.
    let lab = lab.set("SCRUBJAY_DATA", "of-env");
    assert_eq!(data(&lab).0, Ok("project/of-env".to_owned()));
    let lab = lab.flag("--data", "data", "of-flag");
    assert_eq!(data(&lab).0, Ok("project/of-flag".to_owned()));
    let lab = Lab { variables: Vec::new(), ..Lab::new() };
    assert!(lab.loader().data(&mut Vec::new()).unwrap_err().to_string().contains("--data DIR"));
}

#[test]
fn values_reach_the_settings_of_each_crate() {
    let loaded = loaded(
        "on_record_failure: forward\ndurability: power\n\
         limits: { max_message_size: 1MiB, max_tape_size: 5MB, max_tape_duration: 2h }\n\
         serve: { http: '127.0.0.1:0', max_body_size: 2MiB, max_sessions: 3, session_idle: 4m, auth_token: abc,\n\
         allowed_hosts: [h.example], allowed_origins: ['https://o.example'] }\n",
    );
    use scrubjay_gateway::relay;
    assert_eq!(loaded.relay().on_record_failure, relay::OnRecordFailure::Forward);
    assert_eq!(loaded.relay().durability, relay::Durability::Power);
    assert_eq!(loaded.relay().message_bytes_max, 1 << 20);
    assert_eq!(loaded.limits().tape_bytes_max, 5_000_000);
    assert_eq!(loaded.limits().tape_duration_max.as_secs(), 7200);
    let http = loaded.serve_config().unwrap().http.unwrap();
    // The limit for messages overrides a higher one for requests.
    assert_eq!((http.body_bytes_max, http.sessions_max), (1 << 20, 3));
    assert!(loaded.notices.iter().any(|notice| notice.contains("max_body_size")), "{:?}", loaded.notices);
    assert_eq!(http.session_idle_max.as_secs(), 240);
    assert_eq!(http.auth_tokens[0].secret.reveal(), "abc");
    assert_eq!(
        (http.allowed_hosts, http.allowed_origins),
        (vec!["h.example".into()], vec!["https://o.example".into()])
    );
}

#[test]
fn the_body_limit_defaults_to_the_message_limit() {
    let check = |more: &str, expected: usize| {
        let loaded =
            loaded(&format!("limits: {{ max_message_size: 1MiB }}\nserve: {{ http: '127.0.0.1:0'{more} }}"));
        assert_eq!(loaded.serve_config().unwrap().http.unwrap().body_bytes_max, expected);
        assert_eq!(loaded.notices, Vec::<String>::new());
    };
    check("", 1 << 20);
    check(", max_body_size: 4KiB", 4096);
}

#[test]
fn a_token_is_required_on_a_public_address() {
    let serve = |lab: &Lab| lab.load().serve_config().map_err(|e| reported(&e).concat());
    let lab = Lab::new().user("serve: { http: '0.0.0.0:80' }");
    assert!(serve(&lab).unwrap_err().contains("needs --auth-token-file"));
    let lab = lab.user("serve: { http: '0.0.0.0:80', auth_token_file: token }");
    assert!(serve(&lab).unwrap_err().contains("cannot be read from"));
    let token = lab.write("home/.config/scrubjay/token", "t0p-s3cret\n");
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let message = serve(&lab).unwrap_err();
    assert!(message.contains("chmod 600") && !message.contains("s3cret"), "{message}");
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(serve(&lab).unwrap().http.unwrap().auth_tokens[0].secret.reveal(), "t0p-s3cret");
    assert_eq!(lab.load().secrets(), ["t0p-s3cret"]);
    lab.write("home/.config/scrubjay/token", "anna: t0p-s3cret\n# and\nb0b-s3cret\n");
    assert_eq!(serve(&lab).unwrap().http.unwrap().auth_tokens.len(), 2);
    assert_eq!(lab.load().secrets(), ["b0b-s3cret", "t0p-s3cret"]);
    lab.write("home/.config/scrubjay/token", "two words-s3cret\n");
    let message = serve(&lab).unwrap_err();
    assert!(message.contains("holds no token") && !message.contains("s3cret"), "{message}");
    let lab = lab.user("serve: { http: '0.0.0.0:80', auth_token_file: token, auth_token: abc }");
    assert!(serve(&lab).unwrap_err().contains("give one"));
    assert!(serve(&Lab::new()).unwrap().http.is_none());
}

#[test]
fn config_show_contains_no_secret() {
    let loaded = loaded(
        "serve: { http: '127.0.0.1:1', auth_token: canary-1 }\n\
         backends:\n\
         \x20 - { id: a, type: stdio, command: a, args: [--token, canary-2], env: { API_KEY: canary-3, A: ghp_canary4 } }\n\
         \x20 - { id: b, type: http, url: 'https://x:canary-5@h/', headers: { Cookie: canary-6 } }\n",
    );
    let text = serde_json::to_string(&loaded.shown()).unwrap();
    assert!(!text.contains("canary"), "{text}");
    assert_eq!(loaded.secrets().len(), 6);
}

const MANUAL: &str = include_str!("../../../docs/CONFIG.md");
/// What the manual's example leaves out: one of the two tokens, and second names.
const NOT_IN_EXAMPLE: [&str; 4] = [
    "serve.auth_token",
    "recorder.storage.path",
    "recorder.storage.max_tape_size",
    "recorder.storage.max_tape_duration",
];

fn example() -> &'static str {
    MANUAL.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap()
}

#[test]
fn the_manual_lists_every_key() {
    for key in section::keys() {
        let trust = if key.is_free { "" } else { " *(t)*" };
        assert!(MANUAL.contains(&format!("\n| `{}`{trust} |", key.path)), "{}", key.path);
    }
    let loaded = Lab::new().user(example()).set("TICKETS_TOKEN", "t").load();
    assert_eq!(loaded.backends().len(), 2);
    let missing = loaded.shown().into_iter().filter(|s| s.origin == "default").map(|s| s.key);
    let expected = [&NOT_IN_EXAMPLE[..], &["backends[1].callTimeout"]].concat();
    assert_eq!(missing.collect::<Vec<_>>(), expected);
}

#[test]
fn a_second_name_sets_the_same_key() {
    let lab = Lab::new().user("recorder: { storage: { path: tapes, max_tape_size: 5MB } }\n");
    let directory = lab.at("home/.config/scrubjay/tapes");
    assert_eq!(lab.load().home().unwrap().root(), directory);
    assert_eq!(lab.loader().data(&mut Vec::new()).unwrap().root(), directory);
    assert_eq!(lab.shown("data").1, "home/.config/scrubjay/config.yaml:1");
    assert_eq!(lab.load().limits().tape_bytes_max, 5_000_000);
    // A later layer wins under either name.
    let lab = lab.set("SCRUBJAY_DATA", "/elsewhere").set("SCRUBJAY_LIMITS_MAX_TAPE_SIZE", "7MB");
    assert_eq!(lab.load().home().unwrap().root(), std::path::Path::new("/elsewhere"));
    assert_eq!(lab.load().limits().tape_bytes_max, 7_000_000);
    assert_eq!(lab.shown("recorder.storage.path").0, "null");
}

#[test]
fn variables_set_the_recorder_section() {
    let lab = Lab::new()
        .user("recorder: { strategy: { kind: error_focused, before: 3 } }")
        .set("SCRUBJAY_RECORDER_STRATEGY", "performance")
        .set("SCRUBJAY_RECORDER_FILTERS_EXCLUDE_METHODS", "ping, */list")
        .set("SCRUBJAY_RECORDER_SAMPLING_ALWAYS_SAMPLE", "errors,slow_requests");
    let selection = lab.load().policy().unwrap().selection;
    let threshold = std::time::Duration::from_secs(1);
    assert_eq!(selection.strategy, scrubjay_core::selection::SelectionStrategy::Performance { threshold });
    assert_eq!(selection.filters.exclude_methods.len(), 2);
    assert!(selection.always.errors && selection.always.slow == Some(threshold));
    let wrong = Lab::new().set("SCRUBJAY_RECORDER_STRATEGY", "half").problems();
    assert!(wrong[0].starts_with("$SCRUBJAY_RECORDER_STRATEGY: must be full"), "{wrong:?}");
}

#[test]
fn an_untrusted_file_cannot_change_what_is_recorded() {
    let theirs = "recorder:\n  enabled: false\n  capture: { errors: false }\n  filters: { exclude_methods: ['*'] }\n  \
                  sampling: { strategy: random, rate: 0 }\n  strategy: performance\n  \
                  storage: { path: here, retention: 1s, max_tape_size: 1KiB }\n  performance: { async_storage: true }\n";
    let lab = Lab::new().project(theirs);
    let loaded = lab.load();
    let policy = loaded.policy().unwrap();
    assert!(policy.enabled && policy.selection.keeps_all() && policy.buffer_max.is_none());
    assert_eq!((loaded.retention(), loaded.limits().tape_bytes_max), (None, 100_000_000));
    assert!(!loaded.home().unwrap().root().ends_with("here"));
    let mut notices = Vec::new();
    assert!(!lab.loader().data(&mut notices).unwrap().root().ends_with("here"));
    says(&notices, "without recorder.storage.path");
    lab.trust();
    let policy = lab.load().policy().unwrap();
    assert!(!policy.enabled && !policy.selection.keeps_all() && policy.buffer_max.is_some());
    assert!(lab.load().home().unwrap().root().ends_with("here"));
}

/// Every key of an untrusted file is left out and named, except the few that do not help an attacker.
#[test]
fn every_ignored_key_of_an_untrusted_file_is_named() {
    let lab = Lab::new().project(example()).set("TICKETS_TOKEN", "t");
    let (loaded, none) = (lab.load(), Lab::new().load());
    let given = ["records.stale_after", "router.shortlist"];
    let differing = loaded.differing_keys(&none);
    assert!(differing.iter().all(|key| key == "data" || given.contains(&key.as_str())), "{differing:?}");
    let FileState::Untrusted { left_out } = &loaded.files[1].state else { panic!("{:?}", loaded.files) };
    let keys = section::keys().iter().map(|key| key.path.as_str());
    for key in keys.filter(|key| !given.contains(key) && !NOT_IN_EXAMPLE.contains(key)) {
        assert!(left_out.iter().any(|left_out| left_out == key), "{key} is not named");
        says(&loaded.notices, key);
    }
}

/// A mistake in an untrusted file keeps nothing from starting, and no key of the file counts.
#[test]
fn a_mistake_in_an_untrusted_file_is_only_reported() {
    for wrong in [
        "colour: blue\nrecords: { stale_after: 7 }\n",
        "recorder: { enabled: maybe }\n",
        "a: [\n",
        "- 1\n",
        "limits: 3\n",
        "log_level: silent\nlog_level: silent\n",
        "records: { stale_after: '${NOBODY}' }\n",
    ] {
        let lab = Lab::new().project(wrong);
        let loaded = lab.load();
        assert!(
            loaded.notices.iter().any(|notice| notice.contains("is not used: it is not trusted")),
            "{wrong}"
        );
        assert!(matches!(&loaded.files[1].state, FileState::Refused { .. }), "{wrong}");
        assert_eq!(lab.shown("records.stale_after").0, "20", "{wrong}");
        assert!(!lab.problems_if_trusted().is_empty(), "{wrong}");
    }
}

#[test]
fn an_untrusted_file_cannot_change_the_model() {
    let defaults = Lab::new().load().llm_config().unwrap();
    assert_eq!(defaults, scrubjay_llm::LlmConfig::default());
    let theirs = "llm: { api_key: sk-theirs-1, base_url: 'https://evil.example/v1', model: dear, retries: 0,\n\
                  required: true, allow_insecure: true }\n";
    let lab = Lab::new().set("OPENAI_API_KEY", "sk-mine-123").project(theirs);
    let llm = lab.load().llm_config().unwrap();
    assert_eq!((llm.base_url.as_str(), llm.model.as_str()), ("https://api.openai.com/v1", "gpt-4o-mini"));
    assert_eq!((llm.api_key.unwrap().reveal(), llm.retries), ("sk-mine-123", 2));
    assert!(!llm.required && !llm.allow_insecure);
    lab.trust();
    let llm = lab.load().llm_config().unwrap();
    assert_eq!((llm.base_url.as_str(), llm.model.as_str()), ("https://evil.example/v1", "dear"));
    // The same holds for the file of the progress tracker.
    let lab = Lab::new();
    lab.write("project/agent-progress.config.json", r#"{"openai": {"baseUrl": "https://evil.example"}}"#);
    assert_eq!(lab.load().llm_config().unwrap().base_url, "https://api.openai.com/v1");
}

#[test]
fn the_usual_variables_set_the_model() {
    let lab = Lab::new()
        .set("OPENAI_API_KEY", "sk-mine-123")
        .set("OPENAI_BASE_URL", "http://localhost:11434/v1")
        .set("AGENT_PROGRESS_MODEL", "llama");
    let loaded = lab.load();
    let llm = loaded.llm_config().unwrap();
    assert_eq!((llm.base_url.as_str(), llm.model.as_str()), ("http://localhost:11434/v1", "llama"));
    assert_eq!(loaded.secrets(), ["sk-mine-123"]);
    assert_eq!(lab.shown("llm.api_key"), pair("***", "$OPENAI_API_KEY"));
    // These names win over a client's options, and our own names win over them.
    let sent = loaded.with_options(&json!({"OPENAI_API_KEY": "sk-sent-123"})).ok().unwrap();
    assert_eq!(sent.llm_config().unwrap().api_key.unwrap().reveal(), "sk-mine-123");
    let sent = Lab::new().load().with_options(&json!({"OPENAI_API_KEY": "sk-sent-123"})).ok().unwrap();
    assert_eq!(sent.llm_config().unwrap().api_key.unwrap().reveal(), "sk-sent-123");
    let ours = lab.set("SCRUBJAY_LLM_MODEL", "ours").load();
    assert_eq!(ours.llm_config().unwrap().model, "ours");
}

#[test]
fn an_unusable_model_is_reported() {
    for (text, expected) in [
        (
            "llm: { base_url: 'http://far.example/v1' }",
            ":1: llm.base_url is on another machine and not https",
        ),
        ("llm:\n  required: true\n", ":2: llm.required asks for a key, and there is none"),
    ] {
        let error = loaded(text).llm_config().err().unwrap();
        says(&error.problems.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
    let local = loaded("llm: { required: true, base_url: 'http://localhost:1' }").llm_config();
    assert!(local.is_ok_and(|llm| llm.required));
}
