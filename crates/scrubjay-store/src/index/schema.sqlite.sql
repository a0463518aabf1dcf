-- The text itself stays on the tapes: `content` is empty, and only the words are stored.
CREATE VIRTUAL TABLE texts USING fts5(text, content='', contentless_delete=1, tokenize='unicode61');
-- 32 MiB of new words are collected in memory before a segment is written, instead of 1 MiB, so that there are fewer.
INSERT INTO texts (texts, rank) VALUES ('hashsize', 33554432);
-- Eight segments are merged at once instead of four, so each word is rewritten less often while the index is filled.
INSERT INTO texts (texts, rank) VALUES ('automerge', 8);
