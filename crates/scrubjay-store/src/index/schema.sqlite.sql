-- The text itself stays on the tapes.
CREATE VIRTUAL TABLE texts USING fts5(text, content='', contentless_delete=1, tokenize='unicode61');
INSERT INTO texts (texts, rank) VALUES ('hashsize', 33554432);
-- Words are merged later and more at once: each is written down again less often while the index is filled.
INSERT INTO texts (texts, rank) VALUES ('automerge', 8);
