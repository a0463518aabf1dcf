CREATE TABLE progress_scopes (
  number {number},
  project_id TEXT NOT NULL UNIQUE REFERENCES projects (id)
);

CREATE TABLE progress_entries (
  at_us BIGINT PRIMARY KEY,
  scope BIGINT NOT NULL REFERENCES progress_scopes (number),
  id TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  event_id BIGINT NOT NULL REFERENCES events (id),
  agent_id TEXT,
  title TEXT NOT NULL,
  title_folded TEXT NOT NULL,
  tags TEXT NOT NULL,
  summary TEXT,
  summary_model TEXT,
  content TEXT NOT NULL
);
CREATE INDEX progress_entries_by_scope ON progress_entries (scope, at_us, title_folded);

CREATE TABLE progress_tags (
  scope BIGINT NOT NULL,
  tag TEXT NOT NULL,
  at_us BIGINT NOT NULL REFERENCES progress_entries (at_us),
  title_folded TEXT NOT NULL,
  PRIMARY KEY (scope, tag, at_us, title_folded)
);

CREATE TABLE progress_claims (
  subject TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  until_ns BIGINT NOT NULL
)
