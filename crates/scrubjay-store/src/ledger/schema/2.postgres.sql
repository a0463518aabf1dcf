CREATE TABLE progress_text (
  at_us BIGINT PRIMARY KEY REFERENCES progress_entries (at_us),
  words TSVECTOR NOT NULL
);
CREATE INDEX progress_text_by_word ON progress_text USING GIN (words)
