-- A database of form 1, as version 0.1.0 of Caisson makes it, with a run that has lines.
CREATE SCHEMA IF NOT EXISTS caisson;
CREATE TABLE IF NOT EXISTS caisson.form (form integer NOT NULL, oldest integer NOT NULL, changed_at timestamptz NOT NULL);
-- Each process that is or was a host.
CREATE TABLE caisson.hosts (
  host_id text PRIMARY KEY,
  name text NOT NULL,
  version text NOT NULL,
  -- Runs that it carries out at once.
  slots integer NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE caisson.runs (
  run_id text PRIMARY KEY,
  -- Grows each time that a host takes the run. What an earlier host still writes is refused.
  epoch integer NOT NULL DEFAULT 0,
  -- Null: nobody has it.
  host_id text,
  -- Of the last line of its journal.
  seq integer NOT NULL DEFAULT 0,
  head text NOT NULL DEFAULT repeat('0', 64),
  bytes bigint NOT NULL DEFAULT 0,
  -- What another host needs to continue the run from its last checkpoint. Null: only its journal.
  files jsonb,
  has_ended boolean NOT NULL DEFAULT false,
  -- It waits for nothing but people, and nobody has to take it.
  waits boolean NOT NULL DEFAULT false,
  -- Whom it is for.
  lane text NOT NULL DEFAULT '',
  -- Among those of its lane that wait to be taken; the lowest is first.
  rank smallint NOT NULL DEFAULT 0,
  -- Its place in the fair order of all lanes. Null: it does not wait to be taken.
  tag bigint,
  created_at timestamptz NOT NULL DEFAULT now(),
  taken_at timestamptz
);
CREATE INDEX runs_of_hosts ON caisson.runs (host_id) WHERE host_id IS NOT NULL;
CREATE INDEX runs_of_lanes ON caisson.runs (lane, tag) WHERE tag IS NOT NULL;
CREATE INDEX runs_to_take ON caisson.runs (run_id) WHERE NOT has_ended AND NOT waits;

-- The lines of the journals, as a host writes them into its file.
CREATE TABLE caisson.journal (
  run_id text NOT NULL REFERENCES caisson.runs (run_id),
  seq integer NOT NULL,
  epoch integer NOT NULL,
  prev text NOT NULL,
  hash text NOT NULL,
  -- The line without its newline.
  body text NOT NULL,
  PRIMARY KEY (run_id, seq)
);

-- For the fair order: the last tag of each lane.
CREATE TABLE caisson.lanes (
  lane text PRIMARY KEY,
  tag bigint NOT NULL
);
-- One row: the highest tag of a run that was taken.
CREATE TABLE caisson.served (tag bigint NOT NULL);
INSERT INTO caisson.served VALUES (0);
INSERT INTO caisson.form VALUES (1, 1, '2026-11-28 12:00:00Z');
INSERT INTO caisson.hosts (host_id, name, version, slots) VALUES ('host-1', 'first', '0.1.0', 2);
INSERT INTO caisson.runs (run_id, epoch, host_id, seq, head, bytes, files, lane, taken_at) VALUES
  ('run-0123456789abcdef0123', 1, 'host-1', 1, repeat('a', 64), 12, '[]', 'somebody', '2026-11-28 12:00:00Z'),
  ('run-0123456789abcdef0124', 2, NULL, 0, repeat('0', 64), 0, NULL, '', NULL);
UPDATE caisson.runs SET tag = 1, rank = 2 WHERE run_id = 'run-0123456789abcdef0124';
INSERT INTO caisson.journal VALUES ('run-0123456789abcdef0123', 1, 1, repeat('0', 64), repeat('a', 64), '{"a":"line"}');
INSERT INTO caisson.lanes VALUES ('somebody', 1);
UPDATE caisson.served SET tag = 1;
