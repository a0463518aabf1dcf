CREATE VIRTUAL TABLE record_texts USING fts5 (
  title, summary, body, type, facets, content = '', contentless_delete = 1, tokenize = 'unicode61'
)
