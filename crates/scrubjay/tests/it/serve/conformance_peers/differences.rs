//! The checks that pass directly and not through Scrubjay, with reasons. An entry without a difference must be removed.

use super::Route;
use super::suite::LostCheck;

/// A check that is known to end differently.
struct KnownDifference {
    servers: &'static [&'static str],
    revision: &'static str,
    routes: &'static [Route],
    /// The suite's id of the check.
    check: &'static str,
    why: &'static str,
    /// Whether it may also end the same way, because it depends on how long an answer takes.
    varies: bool,
}

const EVERY_SERVER: &[&str] = &["python", "everything", "example"];
/// The reason for checks about streams: a client sees Scrubjay's streams, not the server's.
const OUR_STREAMS: &[Route] = &[Route::ServeStdio, Route::ServeHttp, Route::WrapStdio];
const SERVE: &[Route] = &[Route::ServeStdio, Route::ServeHttp];

const KNOWN_DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        servers: EVERY_SERVER,
        revision: "2025-11-25",
        routes: OUR_STREAMS,
        check: "server-sse-streams-functional",
        why: "an answer that comes at once is sent as JSON, so there is no stream to look at",
        varies: true,
    },
    KnownDifference {
        servers: &["everything", "example"],
        revision: "2025-11-25",
        routes: OUR_STREAMS,
        check: "server-sse-priming-event",
        why: "an answer that comes at once is sent as JSON, so there is no stream to begin",
        varies: true,
    },
    KnownDifference {
        servers: &["python"],
        revision: "2025-11-25",
        routes: &Route::ALL,
        check: "server-sse-disconnect-resume",
        why: "a stream the server closes early is resumed by us; the client's stays open",
        varies: true,
    },
    KnownDifference {
        servers: &["everything", "example"],
        revision: "2025-11-25",
        routes: SERVE,
        check: "tools-call-simple-text",
        why: "the server has no such tool: its text that says so passes for an answer, our error does not",
        varies: false,
    },
    KnownDifference {
        servers: &["everything", "example"],
        revision: "2025-11-25",
        routes: SERVE,
        check: "tools-call-error",
        why: "the server has no such tool: its text that says so passes for the error, our error does not",
        varies: false,
    },
    KnownDifference {
        servers: &["python"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "sep-2243-server-validate-param-match",
        why: "a server on standard streams sees no headers, and wrap does not read its tools' schemas",
        varies: false,
    },
    KnownDifference {
        servers: &["python"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "sep-2243-server-reject-param-mismatch",
        why: "a server on standard streams sees no headers, and wrap does not read its tools' schemas",
        varies: false,
    },
    KnownDifference {
        servers: &["python"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "sep-2575-http-server-method-not-found-404-initialize",
        why: "on standard streams this server refuses a modern initialize with another error, which we pass on",
        varies: false,
    },
    // A server of the older era. Over HTTP it refuses all requests without a session, which the suite counts as a check
    // of the request. On standard streams there are no sessions, and it answers.
    KnownDifference {
        servers: &["everything"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "sep-2322-error-on-protocol-error",
        why: "an old server answers a modern request on standard streams",
        varies: false,
    },
    KnownDifference {
        servers: &["everything"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "sep-2322-validate-input-responses",
        why: "an old server answers a modern request on standard streams",
        varies: false,
    },
    KnownDifference {
        servers: &["everything"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "wire-schema-valid",
        why: "an old server answers a modern request on standard streams, without a resultType",
        varies: false,
    },
    KnownDifference {
        servers: &["everything"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "sep-2575-server-honors-notification-filter",
        why: "an old server does not know server/discover, and on standard streams says so",
        varies: false,
    },
    KnownDifference {
        servers: &["everything"],
        revision: "2026-07-28",
        routes: &[Route::WrapStdio],
        check: "sep-2575-http-server-unsupported-version-400",
        why: "an old server does not know server/discover, and on standard streams says so",
        varies: false,
    },
];

/// Returns a line for each failure without an entry here, and for each entry without a failure.
pub(super) fn unexplained(server: &str, revision: &str, route: Route, lost: &[LostCheck]) -> Vec<String> {
    let applies = |known: &&KnownDifference| {
        known.servers.contains(&server) && known.revision == revision && known.routes.contains(&route)
    };
    let known: Vec<&KnownDifference> = KNOWN_DIFFERENCES.iter().filter(applies).collect();
    let bad = lost.iter().filter(|lost| known.iter().all(|known| known.check != lost.id));
    let settled = known.iter().filter(|known| !known.varies);
    let stale = settled.filter(|known| lost.iter().all(|lost| known.check != lost.id));
    let bad = bad.map(|lost| format!("passes directly, not through Scrubjay: {} in {}", lost.id, lost.what));
    bad.chain(
        stale.map(|known| {
            format!("no longer differs, remove it from this list: {} ({})", known.check, known.why)
        }),
    )
    .collect()
}
