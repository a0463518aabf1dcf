CREATE VIRTUAL TABLE progress_text USING fts5 (
  title, content, tags, content = '', contentless_delete = 1, tokenize = 'ascii'
);
INSERT INTO progress_text (progress_text, rank) VALUES ('automerge', 0);
INSERT INTO progress_text (progress_text, rank) VALUES ('crisismerge', 64)
