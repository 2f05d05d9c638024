/** The steps from an empty database to its newest form. A released step never changes; a new form is a further step. */
export const migrations: readonly string[] = [
  `
  CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    -- Of the files that the row was made from.
    stamp TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    workspace TEXT NOT NULL,
    model TEXT NOT NULL,
    -- Null: it has not ended.
    outcome TEXT,
    -- As summary.json has it.
    outline TEXT NOT NULL
  ) STRICT;
  CREATE INDEX runs_newest ON runs (started_at DESC, id);

  CREATE TABLE run_metadata (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run_id, key)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX run_metadata_values ON run_metadata (key, value);

  -- Runs that wait to start, or to continue.
  CREATE TABLE queue (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL UNIQUE,
    lane TEXT NOT NULL,
    priority TEXT NOT NULL,
    queued_at INTEGER NOT NULL
  ) STRICT;

  -- When a run of each lane started last.
  CREATE TABLE lanes (lane TEXT PRIMARY KEY, served INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  `,
  // A fork began when it was made. Rows are made anew from the files of their runs.
  `
  DELETE FROM runs;
  ALTER TABLE runs RENAME COLUMN started_at TO begun_at;
  `,
]
