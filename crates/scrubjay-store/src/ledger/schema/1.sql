CREATE TABLE projects (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  description TEXT,
  created_ns BIGINT NOT NULL,
  tick BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  project_id TEXT NOT NULL REFERENCES projects (id),
  title TEXT,
  user_message TEXT,
  agent TEXT,
  workspace TEXT,
  told_by TEXT NOT NULL,
  parent_session TEXT,
  created_ns BIGINT NOT NULL,
  last_activity_ns BIGINT NOT NULL,
  ended_ns BIGINT,
  current_step BIGINT,
  last_sync_tick BIGINT NOT NULL,
  last_save_ns BIGINT
);
CREATE INDEX sessions_by_project ON sessions (project_id, last_activity_ns);
CREATE INDEX sessions_by_activity ON sessions (last_activity_ns);

CREATE TABLE callers (
  caller TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES sessions (id)
);

CREATE TABLE events (
  id {number},
  project_id TEXT NOT NULL REFERENCES projects (id),
  session_id TEXT NOT NULL REFERENCES sessions (id),
  at_ns BIGINT NOT NULL,
  kind TEXT NOT NULL,
  step BIGINT,
  subject TEXT,
  summary TEXT NOT NULL,
  details TEXT NOT NULL,
  tape TEXT,
  entry BIGINT
);
CREATE INDEX events_by_session ON events (session_id, id);
CREATE INDEX events_by_project ON events (project_id, id);
CREATE INDEX events_by_subject ON events (project_id, subject, id);

CREATE TABLE plan_steps (
  id {number},
  session_id TEXT NOT NULL REFERENCES sessions (id),
  plan BIGINT NOT NULL,
  position BIGINT NOT NULL,
  text TEXT NOT NULL,
  status TEXT NOT NULL
);
CREATE INDEX plan_steps_by_session ON plan_steps (session_id, plan, position);

CREATE TABLE blobs (
  id {number},
  hash {bytes} NOT NULL UNIQUE,
  size BIGINT NOT NULL,
  data {bytes} NOT NULL
);

CREATE TABLE revisions (
  id {number},
  workspace TEXT NOT NULL,
  path TEXT NOT NULL,
  event_id BIGINT NOT NULL REFERENCES events (id),
  source TEXT NOT NULL,
  state TEXT NOT NULL,
  before_hash {bytes},
  after_hash {bytes},
  size BIGINT NOT NULL,
  lines BIGINT NOT NULL,
  added BIGINT NOT NULL,
  removed BIGINT NOT NULL,
  mode BIGINT
);
CREATE INDEX revisions_by_path ON revisions (workspace, path, id);
CREATE INDEX revisions_by_event ON revisions (event_id);
CREATE INDEX revisions_pending ON revisions (state) WHERE state = 'pending';

CREATE TABLE narratives (
  inputs {bytes} PRIMARY KEY,
  text TEXT NOT NULL,
  created_ns BIGINT NOT NULL
)
