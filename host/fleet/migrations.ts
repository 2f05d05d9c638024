/**
 * The steps from an empty database to the newest form of a fleet's, and who may do what in it. A released step never
 * changes. A step only adds, so that hosts of the version before keep working beside it; see `oldestForm`.
 */

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
]

/** Hosts that know this form, and no newer one, may work beside those of the newest. */
export const oldestForm = 1

/**
 * What the role of the hosts needs, for an owner who lets no host change the form. Lines of a journal can neither be changed
 * nor removed by it.
 */
export function grantsOf(role: string): readonly string[] {
  const name = `"${role.replaceAll('"', '""')}"`
  return [
    `GRANT USAGE ON SCHEMA caisson, caisson_queue TO ${name}`,
    `GRANT SELECT ON ALL TABLES IN SCHEMA caisson TO ${name}`,
    `GRANT INSERT, UPDATE ON caisson.hosts, caisson.runs, caisson.lanes TO ${name}`,
    `GRANT UPDATE ON caisson.served TO ${name}`,
    `GRANT INSERT ON caisson.journal TO ${name}`,
    `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA caisson_queue TO ${name}`,
    `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA caisson_queue TO ${name}`,
  ]
}
