//! Where a connection came from, and the session that follows from it.

use scrubjay_core::id::TapeId;
use serde::{Deserialize, Serialize};

/// What is known about the host conversation that a connection belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The host's own id of the conversation, if it gives one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_session: Option<String>,
    /// The W3C trace context the host passed on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// The process that started us.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_pid: Option<u32>,
    /// When that process started, in clock ticks of the system, because pids are reused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_started: Option<u64>,
    /// That process's program name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_program: Option<String>,
}

impl Origin {
    /// Returns the origin of a client over HTTP: the conversation in which the listening process was started is not the
    /// client's.
    #[must_use]
    pub fn of_listener(self) -> Self {
        Self { host_session: None, traceparent: None, ..self }
    }
}

/// The session that a connection belongs to, and what identified it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRef {
    /// The session's id.
    pub id: String,
    /// What identified it.
    pub told_by: SessionSource,
}

/// What identified the session of a connection, the most certain first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionSource {
    /// The agent named it.
    Agent,
    /// The host named it.
    HostSession,
    /// The host passed on a trace.
    Trace,
    /// The same host process started it in the same workspace.
    HostProcess,
    /// Nothing: the connection is a session of its own.
    #[default]
    Connection,
}

impl SessionRef {
    /// Returns the session of a connection that a host opened, if something identifies it.
    #[must_use]
    pub fn of_host(origin: &Origin, workspace: Option<&str>) -> Option<Self> {
        if let Some(session) = &origin.host_session {
            return Some(Self::named(SessionSource::HostSession, session));
        }
        // The second field of a trace context names the trace; the others change from call to call.
        if let Some(trace) = origin.traceparent.as_deref().and_then(|t| t.split('-').nth(1)) {
            return Some(Self::named(SessionSource::Trace, trace));
        }
        let (pid, started) = (origin.host_pid?, origin.host_started?);
        Some(Self::named(
            SessionSource::HostProcess,
            &format!("{pid} {started} {}", workspace.unwrap_or_default()),
        ))
    }

    /// Makes the session of a single connection. It is a hash, because the connection's name may be secret.
    #[must_use]
    pub fn of_connection(name: &str) -> Self {
        Self::named(SessionSource::Connection, name)
    }

    fn named(told_by: SessionSource, name: &str) -> Self {
        // The source is part of the hash, so that equal names from two sources are two sessions. Sessions would get
        // other ids if a variant was renamed.
        let hash = blake3::hash(format!("{told_by:?} {name}").as_bytes());
        let start = *hash.as_bytes().first_chunk::<10>().expect("a hash has 32 bytes");
        Self { id: TapeId::from_random(start).to_string(), told_by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_conversation_have_one_session() {
        let from = |host_session: Option<&str>, trace: Option<&str>, pid| Origin {
            host_session: host_session.map(str::to_owned),
            traceparent: trace.map(str::to_owned),
            host_pid: pid,
            host_started: pid.map(u64::from),
            host_program: None,
        };
        let session_of = |origin: Origin, workspace| SessionRef::of_host(&origin, Some(workspace)).unwrap();
        assert_eq!(
            session_of(from(Some("s"), None, Some(1)), "/a"),
            session_of(from(Some("s"), None, Some(2)), "/b")
        );
        let (one, two) = (Some("00-abc-1-01"), Some("00-abc-2-00"));
        assert_eq!(session_of(from(None, one, Some(1)), "/a"), session_of(from(None, two, Some(2)), "/a"));
        assert_eq!(session_of(from(None, one, Some(1)), "/a").told_by, SessionSource::Trace);
        assert_eq!(session_of(from(None, None, Some(1)), "/a"), session_of(from(None, None, Some(1)), "/a"));
        assert_ne!(session_of(from(None, None, Some(1)), "/a"), session_of(from(None, None, Some(1)), "/b"));
        assert_ne!(session_of(from(None, None, Some(1)), "/a"), session_of(from(None, None, Some(2)), "/a"));
        assert_eq!(SessionRef::of_host(&from(None, None, None), None), None);
        assert!(!SessionRef::of_connection("secret").id.contains("secret"));
    }
}
