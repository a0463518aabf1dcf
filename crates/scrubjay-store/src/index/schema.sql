-- Its row is written last, in the transaction that creates everything: an index that has a version is complete.
CREATE TABLE version (
    version BIGINT NOT NULL,
    -- Whether deleted rows may still be in the files: 0 no, 1 only in the log, 2 anywhere. See clean.rs.
    unclean BIGINT NOT NULL
);
-- One row for each tape: how far it was read.
CREATE TABLE tapes (
    number {number},
    id {id} NOT NULL UNIQUE,
    server TEXT NOT NULL,
    session TEXT NOT NULL,
    started_ns BIGINT NOT NULL,
    -- The file when it was read to its end. A size of zero, before that, makes the next catch-up read it again.
    is_sealed BIGINT NOT NULL,
    file_bytes BIGINT NOT NULL,
    next_entry BIGINT NOT NULL,
    -- The first and the last id of its exchanges, zero while it has none. Ids of other tapes may lie between them.
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    damage TEXT
);
-- Methods, tools, backends, rules, tags, error shapes: each text once, because very many rows have the same.
CREATE TABLE names (id {counted}, name {id} NOT NULL UNIQUE);
-- One row for each exchange. Ids continue from tape to tape: FTS5 stores for every word the distance from one id to the
-- next, and a small distance takes one byte.
CREATE TABLE exchanges (
    id {number},
    tape BIGINT NOT NULL,
    -- Its position among the exchanges of the tape.
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
    -- Bits, see fill.rs. 0: it repeats on a backend's connection what a client's exchange shows. 1: the client sent it.
    -- 2: its text is not indexed completely. 3: the gateway sent it for the client. 4: rules changed, delayed, blocked
    -- or answered it. 5: its text includes the original from before rules changed it.
    marks BIGINT NOT NULL,
    took_ns BIGINT,
    failed BIGINT NOT NULL,
    code BIGINT,
    shape BIGINT,
    asked_bytes BIGINT NOT NULL,
    answered_bytes BIGINT NOT NULL,
    -- Tokens are estimates.
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
