/** Hosts of one fleet in one process, each with a state folder of its own and a store of files that all see. */
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { PostgresServer } from '../../../test/support/postgres.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { type Blob, type Content, DirectoryBlobs } from '../../fleet/blob-store.ts'
import { FleetBlobs } from '../../fleet/blobs.ts'
import { Fleet } from '../../fleet/fleet.ts'
import type { SubmissionKey } from '../../fleet/run-requests.ts'
import { storeRunFiles } from '../../fleet-runs/files.ts'
import { FleetRuns } from '../../fleet-runs/fleet-runs.ts'
import { Host } from '../../host.ts'
import { markFleet } from '../../journal/fleet-mark.ts'
import { readBodies } from '../../journal/journal-lines.ts'
import { momentPaths } from '../../journal/kept-moments.ts'
import { RunFold } from '../../journal/run-outline.ts'
import { headOf, newDatabase } from './fleet-place.ts'

/** A store whose writes fail while it has a failure, and that knows which contents were read. */
class FailingBlobs extends DirectoryBlobs {
  failure: Error | undefined
  readonly digestsRead: string[] = []

  override async write(name: string, blob: Blob, content: Content): Promise<void> {
    if (this.failure !== undefined) throw this.failure
    await super.write(name, blob, content)
  }

  override read(name: string, blob: Blob): AsyncGenerator<Buffer> {
    this.digestsRead.push(blob.sha256)
    return super.read(name, blob)
  }
}

export interface FleetNode {
  readonly home: string
  readonly fleet: Fleet
  readonly runs: FleetRuns
  readonly host: Host
  /** The same state folder without the fleet. */
  readonly alone: Host
  readonly store: FailingBlobs
}

export class FleetNodes implements AsyncDisposable {
  readonly #address: FleetAddress
  readonly #folder: string
  readonly #nodes: FleetNode[] = []

  private constructor(address: FleetAddress, folder: string) {
    this.#address = address
    this.#folder = folder
  }

  /** Call it from within a test or a hook. */
  static async open(server: PostgresServer): Promise<FleetNodes> {
    return new FleetNodes(await newDatabase(server), await temporaryFolder('fleet-nodes'))
  }

  async add(
    name: string,
    {
      slots = 0,
      home = path.join(this.#folder, name),
    }: { readonly slots?: number; readonly home?: string } = {},
  ): Promise<FleetNode> {
    await mkdir(home, { recursive: true, mode: 0o700 })
    const fleet = await Fleet.open(this.#address, { name, version: '1', slots, warn: () => undefined })
    const store = new FailingBlobs(path.join(this.#folder, 'blobs'))
    const runs = new FleetRuns(fleet, store)
    const env = {
      HOME: home,
      CAISSON_HOME: path.join(home, 'state'),
      CAISSON_CACHE: path.join(home, 'cache'),
    }
    const node = { home, fleet, runs, store, host: new Host({ env, fences: runs }), alone: new Host({ env }) }
    this.#nodes.push(node)
    return node
  }

  /**
   * Makes a run in the folder of a host one of the fleet, which that host carried out and has left.
   * @param checkpointId whose files the store has; null: those of its end
   */
  async enter(
    { fleet, alone, store }: FleetNode,
    runId: string,
    {
      checkpointId,
      key,
      ...given
    }: {
      readonly checkpointId: string | null
      readonly caller: string
      readonly lane: string
      readonly key?: SubmissionKey
    },
  ): Promise<void> {
    const { runs: table, database, requests, hostId, name } = fleet
    const paths = alone.runs.paths(runId)
    const request = JSON.stringify({ version: 1, start: { by: given.caller } })
    const requires = { labels: [] }
    await fleet.add(runId, { priority: 'normal', isContinued: false, requires, ...given }, (tx) =>
      requests.store(tx, runId, request, key),
    )
    const hold = await table.take(runId, await headOf(table, runId), { hostId, name, message: 'm' })
    if (hold === undefined) throw new Error('the run was not taken')
    const fold = new RunFold()
    const lines = []
    for await (const { event, body, end } of readBodies(paths.journal, runId)) {
      fold.next(event, end)
      lines.push({ ...event, body })
    }
    const { state, outline } = fold
    const ends = state.end !== null
    const blobs = new FleetBlobs(database, store)
    // As the host has them when it writes the end.
    const files = await storeRunFiles(momentPaths(paths, ends), checkpointId, blobs, ends)
    await table.append(hold, lines, { ends, files, outline })
    await database.transaction(async (tx) => {
      await fleet.jobs.remove(tx, runId)
      await table.release(hold, !ends, tx)
    })
    await markFleet(paths.journal)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { host, alone, fleet } of this.#nodes) {
      await host.close()
      await alone.close()
      await fleet[Symbol.asyncDispose]()
    }
  }
}
