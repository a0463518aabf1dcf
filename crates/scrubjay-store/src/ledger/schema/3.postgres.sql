CREATE TABLE record_texts (
  book BIGINT NOT NULL REFERENCES record_books (id),
  number BIGINT NOT NULL,
  words TSVECTOR NOT NULL,
  PRIMARY KEY (book, number)
);
CREATE INDEX record_texts_by_word ON record_texts USING GIN (words)
