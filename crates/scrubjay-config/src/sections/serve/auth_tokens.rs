//! The tokens of clients over HTTP: one from the configuration, or those of a file, one in each line.
//!
//! A line is a token, or `name: token`; `#` begins a comment. Each token is a principal of its own, so
//! that clients with different tokens are told apart. Messages name lines and names, never a token.

use scrubjay_gateway::config::AuthToken;

use crate::loaded::Loaded;
use crate::problem::ConfigError;
use crate::secret_file;
use crate::setting::Token;

impl Loaded {
    /// Returns the tokens that clients may show; none if none is configured. Reads the file.
    pub(crate) fn auth_tokens(&self) -> Result<Vec<AuthToken>, ConfigError> {
        let serve = &self.settings.serve;
        let wrong = |message: String| self.wrong("serve.auth_token_file", message);
        match (&serve.auth_token, &serve.auth_token_file) {
            (None, None) => Ok(Vec::new()),
            (Some(token), None) => Ok(vec![AuthToken { name: None, secret: token.0.clone() }]),
            (Some(_), Some(_)) => Err(wrong("cannot stand beside serve.auth_token: give one".to_owned())),
            (None, Some(file)) => {
                let path = self.base.directory.join(file);
                let text = secret_file::read(&path)
                    .map_err(|e| wrong(format!("cannot be read from {}: {e}", path.display())))?;
                let text = std::str::from_utf8(&text).map_err(|_| "is no text".to_owned());
                text.and_then(parse).map_err(|why| wrong(format!("{why}: {}", path.display())))
            }
        }
    }
}

/// Reads the lines of a file; an error names the line.
fn parse(text: &str) -> Result<Vec<AuthToken>, String> {
    let mut tokens: Vec<AuthToken> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = parse_line(line).ok_or_else(|| {
            format!("holds no token in line {number}, which must be visible ASCII or `name: token`")
        })?;
        if tokens.iter().any(|other| other.secret == token.secret) {
            return Err(format!("holds the token of line {number} twice"));
        }
        if token.name.is_some() && tokens.iter().any(|other| other.name == token.name) {
            let name = token.name.unwrap_or_default();
            return Err(format!("holds the name {name} of line {number} twice"));
        }
        tokens.push(token);
    }
    if tokens.is_empty() { Err("holds no token".to_owned()) } else { Ok(tokens) }
}

fn parse_line(line: &str) -> Option<AuthToken> {
    // A token contains no space, so one with a colon in it is not split.
    let (name, token) = match line.split_once(": ") {
        Some((name, token)) => (Some(name.trim()), token.trim()),
        None => (None, line),
    };
    let in_name = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if name.is_some_and(|name| name.is_empty() || !name.chars().all(in_name)) {
        return None;
    }
    Some(AuthToken { name: name.map(str::to_owned), secret: Token::new(token)?.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_tokens_with_and_without_names() {
        let tokens = parse("# ours\n\nt0ken:1\n  anna: t0ken-2 \nbot-7: t0ken-3\r\n").unwrap();
        let read: Vec<_> = tokens.iter().map(|t| (t.name.as_deref(), t.secret.reveal())).collect();
        assert_eq!(read, [(None, "t0ken:1"), (Some("anna"), "t0ken-2"), (Some("bot-7"), "t0ken-3")]);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_without_its_tokens() {
        for (text, expected) in [
            ("", "holds no token"),
            ("# none\n", "holds no token"),
            ("a-s3cret\ntwo s3cret words", "in line 2"),
            ("a b: s3cret", "in line 1"),
            ("s3cret\nanna: s3cret", "the token of line 2 twice"),
            ("anna: s3cret-1\nanna: s3cret-2", "the name anna of line 2 twice"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(expected) && !why.contains("s3cret"), "{why}");
        }
    }
}
