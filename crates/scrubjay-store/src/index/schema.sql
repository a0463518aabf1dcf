-- What has a version is whole.
CREATE TABLE version (
    version BIGINT NOT NULL,
    -- Whether what was deleted may still be in a file: 0 no, 1 in the log beside it, 2 anywhere.
    unclean BIGINT NOT NULL
);
-- One row a tape: how far it was read.
CREATE TABLE tapes (
    number {number},
    id {id} NOT NULL UNIQUE,
    server TEXT NOT NULL,
    session TEXT NOT NULL,
    started_ns BIGINT NOT NULL,
    -- What the file was when it was read to its end; zero while it is not.
    is_sealed BIGINT NOT NULL,
    file_bytes BIGINT NOT NULL,
    next_entry BIGINT NOT NULL,
    -- Its exchanges have ids from the first to the last of these, others' among them; zero while it has none.
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    damage TEXT
);
-- Methods, tools, backends, shapes of errors: each text once.
CREATE TABLE names (id {counted}, name {id} NOT NULL UNIQUE);
-- One row an exchange. Ids are counted on from tape to tape: full-text search keeps how far it is from one to the
-- next for every word, and of small numbers that takes a byte.
CREATE TABLE exchanges (
    id {number},
    tape BIGINT NOT NULL,
    -- Its place among the exchanges of the tape.
    place BIGINT NOT NULL,
    entry BIGINT NOT NULL,
    answer BIGINT,
    wall_ns BIGINT NOT NULL,
    since_start_ns BIGINT NOT NULL,
    what BIGINT NOT NULL,
    answered_with BIGINT,
    method BIGINT,
    name BIGINT,
    via BIGINT,
    -- Bit 0: the second leg of something shown already; bit 1: by the client; bit 2: not all text is found,
    -- bit 3: by the gateway for the client; bit 4: rules changed, held back, blocked or made some of it; bit 5: its
    -- text is also what it was before rules changed it.
    marks BIGINT NOT NULL,
    took_ns BIGINT,
    failed BIGINT NOT NULL,
    code BIGINT,
    shape BIGINT,
    asked_bytes BIGINT NOT NULL,
    answered_bytes BIGINT NOT NULL,
    -- Estimates.
    asked_tokens BIGINT NOT NULL,
    answered_tokens BIGINT NOT NULL
);
CREATE UNIQUE INDEX exchanges_by_place ON exchanges (tape, place);
CREATE INDEX exchanges_by_time ON exchanges (wall_ns);
CREATE INDEX exchanges_failed ON exchanges (wall_ns) WHERE failed = 1;
-- The rules that applied to an exchange (kind 0), and the tags they gave it (kind 1).
CREATE TABLE judged (exchange BIGINT NOT NULL, kind BIGINT NOT NULL, name BIGINT NOT NULL);
CREATE INDEX judged_by_name ON judged (name, kind, exchange);
CREATE INDEX judged_by_exchange ON judged (exchange);
CREATE TABLE definitions (
    tape BIGINT NOT NULL,
    tool BIGINT NOT NULL,
    via BIGINT,
    hash {bytes} NOT NULL,
    entry BIGINT NOT NULL
);
CREATE INDEX definitions_by_tape ON definitions (tape);
