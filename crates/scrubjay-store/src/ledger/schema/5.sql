CREATE TABLE workspace_moves (
  id {number},
  old_root TEXT NOT NULL,
  new_root TEXT NOT NULL,
  up_to BIGINT NOT NULL,
  event_id BIGINT NOT NULL REFERENCES events (id)
);
CREATE INDEX workspace_moves_by_new ON workspace_moves (new_root);
CREATE INDEX workspace_moves_by_old ON workspace_moves (old_root)
