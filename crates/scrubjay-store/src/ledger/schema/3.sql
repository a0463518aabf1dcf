CREATE TABLE record_books (
  id {number},
  project_id TEXT NOT NULL UNIQUE REFERENCES projects (id),
  last BIGINT NOT NULL,
  roots BIGINT NOT NULL,
  open BIGINT NOT NULL,
  later BIGINT NOT NULL,
  resolved BIGINT NOT NULL,
  discarded BIGINT NOT NULL
);

CREATE TABLE records (
  book BIGINT NOT NULL REFERENCES record_books (id),
  number BIGINT NOT NULL,
  type TEXT NOT NULL,
  title TEXT NOT NULL,
  summary TEXT NOT NULL,
  state TEXT NOT NULL,
  parent BIGINT NOT NULL,
  depth BIGINT NOT NULL,
  path TEXT NOT NULL,
  children BIGINT NOT NULL,
  open_children BIGINT NOT NULL,
  version BIGINT NOT NULL,
  tick BIGINT NOT NULL,
  cited BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  modified_ns BIGINT NOT NULL,
  PRIMARY KEY (book, number)
);
CREATE INDEX records_by_parent ON records (book, parent, number);
CREATE INDEX records_by_state ON records (book, state, number);
CREATE INDEX records_by_path ON records (book, path);

CREATE TABLE record_versions (
  book BIGINT NOT NULL REFERENCES record_books (id),
  number BIGINT NOT NULL,
  version BIGINT NOT NULL,
  tick BIGINT NOT NULL,
  at_ns BIGINT NOT NULL,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  change TEXT NOT NULL,
  reason TEXT,
  type TEXT NOT NULL,
  title TEXT NOT NULL,
  summary TEXT NOT NULL,
  body TEXT NOT NULL,
  state TEXT NOT NULL,
  resolved_by BIGINT,
  related TEXT NOT NULL,
  metadata TEXT NOT NULL,
  citations TEXT NOT NULL,
  PRIMARY KEY (book, number, version)
);
CREATE INDEX record_versions_by_tick ON record_versions (book, tick);
CREATE INDEX record_versions_by_session ON record_versions (session_id, tick);

CREATE TABLE record_actives (
  session_id TEXT NOT NULL REFERENCES sessions (id),
  number BIGINT NOT NULL,
  book BIGINT NOT NULL REFERENCES record_books (id),
  version BIGINT NOT NULL,
  tick BIGINT NOT NULL,
  PRIMARY KEY (session_id, number)
);
CREATE INDEX record_actives_by_record ON record_actives (book, number);

CREATE TABLE record_saves (
  session_id TEXT NOT NULL REFERENCES sessions (id),
  tick BIGINT NOT NULL,
  at_ns BIGINT NOT NULL,
  PRIMARY KEY (session_id, tick)
);

CREATE TABLE record_citations (
  book BIGINT NOT NULL REFERENCES record_books (id),
  number BIGINT NOT NULL,
  place BIGINT NOT NULL,
  workspace TEXT NOT NULL,
  path TEXT NOT NULL,
  first_line BIGINT NOT NULL,
  last_line BIGINT NOT NULL,
  revision BIGINT NOT NULL,
  content {bytes},
  PRIMARY KEY (book, number, place)
);

CREATE INDEX sessions_open ON sessions (project_id, last_activity_ns) WHERE ended_ns IS NULL
