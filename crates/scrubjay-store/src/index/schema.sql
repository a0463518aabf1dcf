-- One row a tape: how far it was read.
CREATE TABLE tapes (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    server TEXT NOT NULL,
    session TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    -- What the file was when it was read to its end; zero while it is not.
    is_sealed INTEGER NOT NULL,
    file_bytes INTEGER NOT NULL,
    next_entry INTEGER NOT NULL,
    damage TEXT
);
-- Methods, tools, backends, shapes of errors: each text once.
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
-- One row an exchange. The id is the tape's number and the exchange's place on it.
CREATE TABLE exchanges (
    id INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL,
    answer INTEGER,
    wall_ns INTEGER NOT NULL,
    since_start_ns INTEGER NOT NULL,
    what INTEGER NOT NULL,
    answered_with INTEGER,
    method INTEGER,
    name INTEGER,
    via INTEGER,
    -- Bit 0: the second leg of something shown already; bit 1: by the client; bit 2: not all text is found.
    marks INTEGER NOT NULL,
    took_ns INTEGER,
    failed INTEGER NOT NULL,
    code INTEGER,
    shape INTEGER,
    asked_bytes INTEGER NOT NULL,
    answered_bytes INTEGER NOT NULL
);
CREATE INDEX exchanges_by_time ON exchanges (wall_ns);
CREATE INDEX exchanges_failed ON exchanges (wall_ns) WHERE failed = 1;
CREATE TABLE definitions (
    tape INTEGER NOT NULL,
    tool INTEGER NOT NULL,
    via INTEGER,
    hash BLOB NOT NULL,
    entry INTEGER NOT NULL
);
CREATE INDEX definitions_by_tape ON definitions (tape);
-- The text itself stays on the tapes.
CREATE VIRTUAL TABLE texts USING fts5(text, content='', contentless_delete=1, tokenize='unicode61');
INSERT INTO texts (texts, rank) VALUES ('hashsize', 33554432);
