/**
 * The steps from an empty database to the newest form of a fleet's, and who may do what in it. A released step never
 * changes. A step only adds, so that hosts of the version before keep working beside it; see `oldestForm`. A release records
 * the form that it leaves in `host/test/fleet/forms/`.
 */

/** Before the first step. */
export const formTable: readonly string[] = [
  'CREATE SCHEMA IF NOT EXISTS caisson',
  'CREATE TABLE IF NOT EXISTS caisson.form (form integer NOT NULL, oldest integer NOT NULL, changed_at timestamptz NOT NULL)',
]

/** Each is done once, by one host, in one transaction. */
export const fleetMigrations: readonly string[] = [
  `
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
  `,
  `
  ALTER TABLE caisson.runs ADD COLUMN ended_at timestamptz;
  UPDATE caisson.runs SET ended_at = now() WHERE has_ended;
  CREATE INDEX runs_by_end ON caisson.runs (ended_at) WHERE has_ended;

  -- Contents of the store of files.
  CREATE TABLE caisson.blobs (
    sha256 text PRIMARY KEY,
    bytes bigint NOT NULL,
    -- Of its object in the store. Never used again once this row is gone.
    name text NOT NULL UNIQUE,
    is_stored boolean NOT NULL DEFAULT false,
    -- A lease of whoever stores it. Later it is removed where no run refers to it.
    kept_until timestamptz NOT NULL
  );
  CREATE INDEX blobs_by_lease ON caisson.blobs (kept_until);
  -- What runs need. A content that is named here cannot be removed.
  CREATE TABLE caisson.run_blobs (
    run_id text NOT NULL REFERENCES caisson.runs (run_id),
    part text NOT NULL,
    sha256 text NOT NULL REFERENCES caisson.blobs (sha256),
    PRIMARY KEY (run_id, part, sha256)
  );
  CREATE INDEX run_blobs_by_content ON caisson.run_blobs (sha256);
  -- Objects that somebody has to remove from the store.
  CREATE TABLE caisson.removed_blobs (
    name text PRIMARY KEY,
    -- How often it was removed.
    times integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now()
  );
  -- One row: when a host last did what one host does for all.
  CREATE TABLE caisson.upkeep (at timestamptz NOT NULL);
  INSERT INTO caisson.upkeep VALUES ('epoch');
  `,
  `
  -- Where other hosts reach this one, https://HOST:PORT. Null: nowhere.
  ALTER TABLE caisson.hosts ADD COLUMN url text;

  -- What lists show: see host/journal/run-outline.ts. Null: nobody has said.
  ALTER TABLE caisson.runs ADD COLUMN outline jsonb;
  -- ms since 1970; the order of lists.
  ALTER TABLE caisson.runs ADD COLUMN begun_at bigint NOT NULL
    DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
  ALTER TABLE caisson.runs ADD COLUMN workspace text NOT NULL DEFAULT '';
  ALTER TABLE caisson.runs ADD COLUMN model text NOT NULL DEFAULT '';
  ALTER TABLE caisson.runs ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
  -- Null: it has not ended.
  ALTER TABLE caisson.runs ADD COLUMN outcome text;
  -- Open ones.
  ALTER TABLE caisson.runs ADD COLUMN questions integer NOT NULL DEFAULT 0;
  CREATE INDEX runs_listed ON caisson.runs (begun_at DESC, run_id);
  CREATE INDEX runs_listed_open ON caisson.runs (begun_at DESC, run_id) WHERE NOT has_ended;
  CREATE INDEX runs_listed_outcome ON caisson.runs (outcome, begun_at DESC, run_id) WHERE outcome IS NOT NULL;
  CREATE INDEX runs_listed_workspace ON caisson.runs (workspace, begun_at DESC, run_id);
  CREATE INDEX runs_listed_model ON caisson.runs (model, begun_at DESC, run_id);
  CREATE INDEX runs_metadata ON caisson.runs USING gin (metadata jsonb_path_ops);
  CREATE INDEX runs_with_questions ON caisson.runs (begun_at, run_id) WHERE questions > 0 AND NOT has_ended;

  -- What other hosts ask the host of a run to do.
  CREATE TABLE caisson.acts (
    act_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text NOT NULL REFERENCES caisson.runs (run_id) ON DELETE CASCADE,
    kind text NOT NULL,
    body jsonb NOT NULL,
    made_by text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    -- End of the journal when a host began to carry it out, and the epoch of that host. Null: nobody has.
    begun_seq integer,
    begun_epoch integer,
    -- Null: it has none yet.
    outcome jsonb
  );
  CREATE INDEX acts_open ON caisson.acts (run_id, act_id) WHERE outcome IS NULL;
  CREATE INDEX acts_made ON caisson.acts (made_at);
  `,
  `
  -- What the run is started with, without secrets. Its text stays as it is.
  ALTER TABLE caisson.runs ADD COLUMN request json;
  -- The key that its caller chose, and the digest of that request. Null: none.
  ALTER TABLE caisson.runs ADD COLUMN start_key text;
  ALTER TABLE caisson.runs ADD COLUMN start_body text;
  CREATE UNIQUE INDEX runs_start_key ON caisson.runs (start_key) WHERE start_key IS NOT NULL;
  -- Tries since its last checkpoint that failed: {hostId, host, message} of each.
  ALTER TABLE caisson.runs ADD COLUMN failures jsonb NOT NULL DEFAULT '[]';

  -- Archives of workspaces that callers uploaded, in the blob store.
  CREATE TABLE caisson.uploads (
    upload_id text PRIMARY KEY,
    sha256 text NOT NULL,
    bytes bigint NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
  );
  `,
  `
  -- Runs whose journals somebody reads as they grow. What a crash loses is written again within half a minute.
  CREATE UNLOGGED TABLE caisson.followed (
    run_id text PRIMARY KEY,
    until timestamptz NOT NULL
  );
  `,
  `
  ALTER TABLE caisson.hosts
    -- It takes no run, and gives back those that it has.
    ADD COLUMN is_draining boolean NOT NULL DEFAULT false,
    -- It said that it ends. Null: it is there, or was lost.
    ADD COLUMN left_at timestamptz,
    -- What it can serve; see placement.ts.
    ADD COLUMN facts jsonb NOT NULL DEFAULT '{}';

  -- What runs require of a host. A host compares each with its facts once.
  CREATE TABLE caisson.classes (
    class_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    requires jsonb NOT NULL UNIQUE
  );
  INSERT INTO caisson.classes (requires) VALUES ('{}');

  CREATE SEQUENCE caisson.places;
  ALTER TABLE caisson.runs
    ADD COLUMN class_id integer NOT NULL DEFAULT 1 REFERENCES caisson.classes (class_id),
    -- The host that has it gives it back at the next safe moment.
    ADD COLUMN leaves boolean NOT NULL DEFAULT false,
    -- Ids or names of hosts. Until then the first one alone may take it, and the second one may not.
    ADD COLUMN wants_host text,
    ADD COLUMN avoids_host text,
    ADD COLUMN wants_until timestamptz,
    -- It ends when no host has begun it by then.
    ADD COLUMN start_by timestamptz,
    -- Since when it waits for a host.
    ADD COLUMN waits_since timestamptz,
    -- Whose quotas count it. Null: the owner's.
    ADD COLUMN caller text,
    -- What it has used, as its host says.
    ADD COLUMN tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN cost_usd double precision NOT NULL DEFAULT 0;
  -- tag is now the place of the run among those of its lane, and the lane has the place in the fair order.
  CREATE INDEX runs_waiting ON caisson.runs (lane, rank, start_by, tag) WHERE tag IS NOT NULL;
  CREATE INDEX runs_at_work ON caisson.runs (lane) WHERE host_id IS NOT NULL AND tag IS NULL;
  CREATE INDEX runs_late ON caisson.runs (start_by) WHERE start_by IS NOT NULL AND tag IS NOT NULL;
  CREATE INDEX runs_of_callers ON caisson.runs (caller, created_at) WHERE caller IS NOT NULL;

  ALTER TABLE caisson.lanes
    -- Its share: a lane of weight 4 gets four times that of a lane of weight 1.
    ADD COLUMN weight double precision NOT NULL DEFAULT 1,
    -- Runs of it at work on all hosts. Null: no bound.
    ADD COLUMN max_at_work integer,
    -- False: no run of it waits.
    ADD COLUMN is_waiting boolean NOT NULL DEFAULT true;
  CREATE INDEX lanes_waiting ON caisson.lanes (tag) WHERE is_waiting;

  -- API keys for all nodes. As on one machine, only a digest of each secret is stored.
  CREATE TABLE caisson.api_keys (
    key_id text PRIMARY KEY,
    name text NOT NULL UNIQUE,
    sha256 text NOT NULL,
    body jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
  );
  `,
  `
  ALTER TABLE caisson.runs
    -- Names of the hosts that carried it out last, which has its disk, and that wrote to it last while no host did, such as
    -- where its changes were applied.
    ADD COLUMN carried_by text,
    ADD COLUMN entered_by text;
  `,
  `
  -- Runs by what they wait for, as changes: each change of a run adds rows, and never changes one. So no two transactions wait
  -- for each other here. The sum is exact.
  CREATE TABLE caisson.tallies (
    -- waiting: for a host; people; ended.
    kind text NOT NULL,
    lane text NOT NULL,
    class_id integer NOT NULL,
    runs bigint NOT NULL
  );
  CREATE INDEX tallies_waiting ON caisson.tallies (lane) WHERE kind = 'waiting';

  -- A trigger, so that hosts of the version before count too, and with the owner's rights, since their role has none here.
  CREATE FUNCTION caisson.tally() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
  BEGIN
    IF TG_OP <> 'INSERT' AND (OLD.has_ended OR OLD.tag IS NOT NULL OR OLD.waits) THEN
      INSERT INTO caisson.tallies VALUES (
        CASE WHEN OLD.has_ended THEN 'ended' WHEN OLD.tag IS NOT NULL THEN 'waiting' ELSE 'people' END,
        CASE WHEN OLD.tag IS NOT NULL AND NOT OLD.has_ended THEN OLD.lane ELSE '' END,
        CASE WHEN OLD.tag IS NOT NULL AND NOT OLD.has_ended THEN OLD.class_id ELSE 0 END, -1);
    END IF;
    IF TG_OP <> 'DELETE' AND (NEW.has_ended OR NEW.tag IS NOT NULL OR NEW.waits) THEN
      INSERT INTO caisson.tallies VALUES (
        CASE WHEN NEW.has_ended THEN 'ended' WHEN NEW.tag IS NOT NULL THEN 'waiting' ELSE 'people' END,
        CASE WHEN NEW.tag IS NOT NULL AND NOT NEW.has_ended THEN NEW.lane ELSE '' END,
        CASE WHEN NEW.tag IS NOT NULL AND NOT NEW.has_ended THEN NEW.class_id ELSE 0 END, 1);
    END IF;
    RETURN NULL;
  END $$;
  CREATE TRIGGER tally_new AFTER INSERT OR DELETE ON caisson.runs FOR EACH ROW EXECUTE FUNCTION caisson.tally();
  CREATE TRIGGER tally_changed AFTER UPDATE ON caisson.runs FOR EACH ROW
    WHEN (OLD.has_ended <> NEW.has_ended OR OLD.waits <> NEW.waits OR (OLD.tag IS NULL) <> (NEW.tag IS NULL)
          OR (NEW.tag IS NOT NULL AND (OLD.class_id <> NEW.class_id OR OLD.lane <> NEW.lane)))
    EXECUTE FUNCTION caisson.tally();
  INSERT INTO caisson.tallies
  SELECT CASE WHEN has_ended THEN 'ended' WHEN tag IS NOT NULL THEN 'waiting' ELSE 'people' END,
         CASE WHEN tag IS NOT NULL AND NOT has_ended THEN lane ELSE '' END,
         CASE WHEN tag IS NOT NULL AND NOT has_ended THEN class_id ELSE 0 END, count(*)
    FROM caisson.runs WHERE has_ended OR tag IS NOT NULL OR waits GROUP BY 1, 2, 3;

  -- No host takes it earlier, such as one whose model server refuses requests for long. Null: at any time.
  ALTER TABLE caisson.runs ADD COLUMN not_before timestamptz;

  -- A host reads past no run of a class that it cannot serve.
  CREATE INDEX runs_waiting_of_class ON caisson.runs (lane, class_id, rank, start_by, tag) WHERE tag IS NOT NULL;
  CREATE INDEX runs_oldest_of_class ON caisson.runs (class_id, waits_since) WHERE tag IS NOT NULL;
  CREATE INDEX runs_by_taking ON caisson.runs (taken_at) WHERE taken_at IS NOT NULL;
  CREATE INDEX runs_listed_sleeping ON caisson.runs (begun_at DESC, run_id) WHERE waits AND NOT has_ended;
  CREATE INDEX runs_listed_held ON caisson.runs (begun_at DESC, run_id) WHERE host_id IS NOT NULL AND NOT has_ended;
  CREATE INDEX runs_listed_queued ON caisson.runs (begun_at DESC, run_id)
   WHERE host_id IS NULL AND NOT waits AND NOT has_ended;

  -- One row: where the look for runs without a job is, and when a host began its last part.
  CREATE TABLE caisson.lost_looks (after_id text NOT NULL, at timestamptz NOT NULL);
  INSERT INTO caisson.lost_looks VALUES ('', 'epoch');

  -- One row, from which the fingerprints of model keys are made. Nobody can tell a key from its fingerprint.
  CREATE TABLE caisson.secret (value text NOT NULL);
  INSERT INTO caisson.secret VALUES (replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
  -- Requests that hosts may send with one key, by the seconds in which they were granted: [[second, count]].
  CREATE TABLE caisson.model_keys (
    fingerprint text PRIMARY KEY,
    granted jsonb NOT NULL DEFAULT '[]',
    -- Hosts that asked of late: {hostId: second}.
    hosts jsonb NOT NULL DEFAULT '{}',
    used_at timestamptz NOT NULL DEFAULT now()
  );
  -- Models that a server holds back from a key.
  CREATE TABLE caisson.model_holds (
    fingerprint text NOT NULL,
    model text NOT NULL,
    held_until timestamptz NOT NULL,
    limited_until timestamptz NOT NULL,
    PRIMARY KEY (fingerprint, model)
  );
  `,
  `
  -- The one host that an act is for, such as to fork a run whose disk it has. Null: the host that has the run.
  ALTER TABLE caisson.acts ADD COLUMN host_id text;
  CREATE INDEX acts_of_hosts ON caisson.acts (host_id) WHERE host_id IS NOT NULL AND outcome IS NULL;
  `,
]

/** Hosts that know this form, and no newer one, may work beside those of the newest. */
export const oldestForm = 8

/**
 * What the role of the hosts needs, for an owner who lets no host change the form. Lines of a journal can neither be changed
 * nor removed by it, unless hosts remove ended runs.
 */
export function grantsOf(
  role: string,
  { removesRuns = false }: { readonly removesRuns?: boolean } = {},
): readonly string[] {
  const name = `"${role.replaceAll('"', '""')}"`
  return [
    `GRANT USAGE ON SCHEMA caisson, caisson_queue TO ${name}`,
    `GRANT SELECT ON ALL TABLES IN SCHEMA caisson TO ${name}`,
    `GRANT INSERT, UPDATE ON caisson.hosts, caisson.runs, caisson.lanes TO ${name}`,
    `GRANT UPDATE ON caisson.served, caisson.upkeep, caisson.lost_looks TO ${name}`,
    `GRANT INSERT, DELETE ON caisson.tallies TO ${name}`,
    `GRANT INSERT, UPDATE, DELETE ON caisson.model_keys, caisson.model_holds TO ${name}`,
    `GRANT INSERT, UPDATE, DELETE ON caisson.blobs, caisson.run_blobs, caisson.removed_blobs TO ${name}`,
    `GRANT DELETE ON caisson.hosts TO ${name}`,
    `GRANT INSERT ON caisson.classes TO ${name}`,
    `GRANT INSERT, DELETE ON caisson.api_keys TO ${name}`,
    `GRANT USAGE ON SEQUENCE caisson.places TO ${name}`,
    `GRANT INSERT ON caisson.journal TO ${name}`,
    `GRANT INSERT, DELETE ON caisson.uploads TO ${name}`,
    `GRANT INSERT, UPDATE, DELETE ON caisson.acts TO ${name}`,
    `GRANT INSERT, UPDATE, DELETE ON caisson.followed TO ${name}`,
    `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA caisson_queue TO ${name}`,
    `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA caisson_queue TO ${name}`,
    ...(removesRuns ? [`GRANT DELETE ON caisson.runs, caisson.journal TO ${name}`] : []),
  ]
}
