/** Copies of a real PostgreSQL server: of its folder while it works, as a backup or as a replica that follows it. */
import { appendFile, cp, rm, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import { PostgresServer } from './postgres.ts'

/**
 * Starts a server on a copy of another one that continues to work, by PostgreSQL's own way for file copies
 * (https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-LOWLEVEL-BASE-BACKUP).
 * @param follows whether it stays a replica, which follows the server as `standby`
 */
export async function startCopy(of: PostgresServer, follows: boolean): Promise<PostgresServer> {
  const client = new pg.Client({ connectionString: of.address })
  await client.connect()
  try {
    await client.query("SELECT pg_backup_start('a test', true)")
    return await PostgresServer.start({
      copyOf: of.data,
      prepare: async (data) => {
        const { rows } = await client.query<{ labelfile: string }>(
          'SELECT labelfile FROM pg_backup_stop(false)',
        )
        await writeFile(path.join(data, 'backup_label'), rows[0]?.labelfile ?? '')
        // What the server logged while the folder was copied.
        await cp(path.join(of.data, 'pg_wal'), path.join(data, 'pg_wal'), { recursive: true })
        if (!follows) return
        await writeFile(path.join(data, 'standby.signal'), '')
        // In its file, so that ALTER SYSTEM may change it.
        await appendFile(path.join(data, 'postgresql.auto.conf'), `primary_conninfo = '${primaryOf(of)}'\n`)
      },
    })
  } finally {
    await client.end()
  }
}

/** A place whose socket is that of one server, and later of another: a name that a failover moves. */
export class MovingAddress {
  readonly #link: string

  constructor(folder: string) {
    this.#link = path.join(folder, 'primary')
  }

  async moveTo(server: PostgresServer): Promise<void> {
    await rm(this.#link, { force: true })
    await symlink(socketFolder(server), this.#link)
  }

  /** Of a database of the server. */
  of(database: string): string {
    return `postgresql:///${database}?${new URLSearchParams({ host: this.#link, user: 'owner' })}`
  }
}

const socketFolder = (server: PostgresServer) => new URL(server.address).searchParams.get('host') ?? ''
const primaryOf = (server: PostgresServer) =>
  `host=${socketFolder(server)} user=owner application_name=standby`
