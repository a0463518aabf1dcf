-- The text itself stays on the tapes. Its words are cut here as for SQLite: no stems, no stop words.
CREATE TABLE texts (rowid BIGINT PRIMARY KEY, text TSVECTOR NOT NULL);
CREATE INDEX texts_by_word ON texts USING GIN (text);
