ALTER TABLE sessions ADD COLUMN host_session TEXT;
CREATE INDEX sessions_by_host_session ON sessions (host_session) WHERE host_session IS NOT NULL;

CREATE TABLE connections (
  id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  process TEXT
);
CREATE INDEX connections_by_session ON connections (session_id);
CREATE INDEX connections_by_process ON connections (process)
