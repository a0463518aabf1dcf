//! The tokens of clients over HTTP: one from the configuration, or several from a file, one in each line.
//!
//! A line is a token, or `name: token`; `#` begins a comment. Each token is a principal of its own: clients with different
//! tokens are different clients. Error messages contain lines and names, never a token.

use std::fmt::Display;

use scrubjay_gateway::config::{AuthToken, Secret};
use thiserror::Error;

use crate::loaded::Loaded;
use crate::owned_file;
use crate::problem::ConfigError;
use crate::setting::fits_header;

impl Loaded {
    /// Returns the tokens that let clients in; none if none is configured. Reads the file.
    pub(crate) fn auth_tokens(&self) -> Result<Vec<AuthToken>, ConfigError> {
        let serve = &self.settings.serve;
        let wrong = |message: &dyn Display| self.wrong("serve.auth_token_file", message);
        let file = match (&serve.auth_token, &serve.auth_token_file) {
            (None, None) => return Ok(Vec::new()),
            (Some(token), None) => return Ok(vec![AuthToken { name: None, secret: token.clone() }]),
            (Some(_), Some(_)) => return Err(wrong(&"cannot be combined with serve.auth_token: give one")),
            (None, Some(file)) => self.base.directory.join(file),
        };
        let path = file.display();
        let text = owned_file::read_secret(&file)
            .map_err(|e| wrong(&format_args!("cannot be read from {path}: {e}")))?;
        let tokens = str::from_utf8(&text).map_err(|_| TokenError::NotText).and_then(parse);
        tokens.map_err(|e| wrong(&format_args!("{e}: {path}")))
    }
}

/// What is wrong with the text of a file of tokens.
#[derive(Debug, Error)]
enum TokenError {
    #[error("is no text")]
    NotText,
    #[error("holds no token")]
    Empty,
    #[error("holds no token in line {0}, which must be visible ASCII or `name: token`")]
    NoToken(usize),
    #[error("holds the token of line {0} twice")]
    TokenTwice(usize),
    #[error("holds the name {name} of line {line} twice")]
    NameTwice { name: String, line: usize },
}

/// Reads the lines of a file.
fn parse(text: &str) -> Result<Vec<AuthToken>, TokenError> {
    let mut tokens: Vec<AuthToken> = Vec::new();
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let token = parse_line(text).ok_or(TokenError::NoToken(line))?;
        if tokens.iter().any(|other| other.secret == token.secret) {
            return Err(TokenError::TokenTwice(line));
        }
        if let Some(name) =
            token.name.as_ref().filter(|_| tokens.iter().any(|other| other.name == token.name))
        {
            return Err(TokenError::NameTwice { name: name.clone(), line });
        }
        tokens.push(token);
    }
    if tokens.is_empty() { Err(TokenError::Empty) } else { Ok(tokens) }
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
    fits_header(token)
        .then(|| AuthToken { name: name.map(str::to_owned), secret: Secret::new(token.to_owned()) })
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
    fn a_wrong_file_is_reported_without_its_tokens() {
        for (text, expected) in [
            ("", "holds no token"),
            ("# none\n", "holds no token"),
            ("a-s3cret\ntwo s3cret words", "in line 2"),
            ("a b: s3cret", "in line 1"),
            ("s3cret\nanna: s3cret", "the token of line 2 twice"),
            ("anna: s3cret-1\nanna: s3cret-2", "the name anna of line 2 twice"),
        ] {
            let why = parse(text).unwrap_err().to_string();
            assert!(why.contains(expected) && !why.contains("s3cret"), "{why}");
        }
    }
}
