//! Binds a backend's `requestState` to the client that it was given to.
//!
//! One connection to a modern backend serves all clients, and a state names the backend's half-made call. So a client
//! gets the state sealed: the state itself, and a code over it, the client and the backend that only this process can
//! make. What comes back is opened for that client and that backend alone, and reaches the backend byte for byte.

use scrubjay_core::message::{self, Splice, quoted};
use scrubjay_core::protocol::result;
use serde_json::value::RawValue;

use crate::client_message::Params;
use crate::session::Session;

/// What a sealed state begins with.
const PREFIX: &str = "scrubjay.";
const KEY: &str = result::REQUEST_STATE;

/// Seals and opens states.
pub(super) struct StateSeal {
    key: [u8; 32],
}

/// Returns whether a state looks sealed, for any client.
pub(super) fn is_sealed(state: &str) -> bool {
    state.starts_with(PREFIX)
}

/// A state that was not given to this client by this backend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForeignState;

impl Default for StateSeal {
    fn default() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system has a source of randomness");
        Self { key }
    }
}

impl StateSeal {
    fn code(&self, client: &str, backend: &str, state: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in [client, backend, state] {
            // The length goes first: otherwise a part could end where the next begins, with the same code.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Seals the state in a result, where it demands input with one.
    pub(super) fn seal(&self, session: &Session, backend: &str, result: String) -> String {
        if !result.contains(KEY) {
            return result;
        }
        let Ok(object) = serde_json::from_str::<&RawValue>(&result) else { return result };
        // All members of that name: a client may come back with any of several.
        let states = message::members_named(Some(object), KEY);
        let sealed = states.iter().fold(Splice::new(object.get()), |splice, state| {
            let code = self.code(&session.client, backend, state.get());
            splice.replace(Some(state), &quoted(&format!("{PREFIX}{code}.{}", state.get())))
        });
        sealed.finish()
    }

    /// Opens the state in a request's parameters, if there is one.
    pub(super) fn open(
        &self,
        session: &Session,
        backend: &str,
        params: Option<Params>,
    ) -> Result<Option<Params>, ForeignState> {
        let Some(text) = params else { return Ok(None) };
        // A server may find a state in what we cannot read.
        if text.raw().is_some_and(|params| !message::is_readable(params)) {
            return Err(ForeignState);
        }
        let states = message::members_like(&text, KEY);
        if states.is_empty() {
            return Ok(Some(text));
        }
        let mut opened = Splice::new(&text);
        for (key, state) in states {
            // In another spelling it is a state to some servers.
            if key != KEY {
                return Err(ForeignState);
            }
            let sealed = message::string(Some(state)).ok_or(ForeignState)?;
            let (code, inner) =
                sealed.strip_prefix(PREFIX).and_then(|s| s.split_once('.')).ok_or(ForeignState)?;
            // Hashes are compared, so that the time it takes does not reveal how much of the code was right.
            let right = blake3::hash(self.code(&session.client, backend, inner).as_bytes());
            if blake3::hash(code.as_bytes()) != right {
                return Err(ForeignState);
            }
            opened = opened.replace(Some(state), inner);
        }
        Ok(Params::new(opened.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::stage::Stage;

    const STATE: &str = r#"{"n":1.0, "x":"\u0061"}"#;

    fn sealed(states: &StateSeal, session: &Session) -> String {
        let result = states.seal(
            session,
            "one",
            format!(r#"{{"resultType":"input_required","requestState":{STATE}}}"#),
        );
        let result: serde_json::Value = serde_json::from_str(&result).expect("JSON");
        result[KEY].as_str().expect("a sealed state is text").to_owned()
    }

    #[tokio::test]
    async fn a_state_comes_back_byte_for_byte_from_its_own_client_to_its_own_backend_alone() {
        let stage = Stage::new(&[]);
        let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
        let states = StateSeal::default();
        let state = quoted(&sealed(&states, &alice));
        let params = |key: &str, state: &str| Params::new(format!(r#"{{"name":"x","{key}":{state}}}"#));
        let text = |params: Option<Params>| params.map(|params| params.to_string());
        let opened = states.open(&alice, "one", params(KEY, &state));
        assert_eq!(opened.map(text), Ok(text(params(KEY, STATE))));
        let refused = |session: &Session, backend: &str, params| {
            assert_eq!(states.open(session, backend, params).map(text), Err(ForeignState));
        };
        refused(&bob, "one", params(KEY, &state));
        refused(&alice, "two", params(KEY, &state));
        refused(&alice, "one", params("RequestState", &state));
        refused(&alice, "one", params(KEY, STATE));
        refused(&alice, "one", params(KEY, &quoted("scrubjay.0000.1")));
        refused(&alice, "one", Params::new(format!(r#"{{"{KEY}":{state},"{KEY}":"made up"}}"#)));
        let other_process = StateSeal::default();
        assert_eq!(other_process.open(&alice, "one", params(KEY, &state)).map(text), Err(ForeignState));
    }

    #[tokio::test]
    async fn what_has_no_state_passes_as_it_is() {
        let stage = Stage::new(&[]);
        let (session, states) = (stage.gateway.open_session("alice"), StateSeal::default());
        let text = |params: Option<Params>| params.map(|params| params.to_string());
        let opened = states.open(&session, "one", Params::new(r#"{ "name":"x" }"#)).map(text);
        assert_eq!(opened, Ok(Some(r#"{ "name":"x" }"#.to_owned())));
        assert_eq!(states.open(&session, "one", None).map(text), Ok(None));
        let result = r#"{ "content":[] }"#.to_owned();
        assert_eq!(states.seal(&session, "one", result.clone()), result);
    }
}
