/** Workspaces that callers upload: each is a folder beside those that the service makes, and belongs to its caller. */
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readdir, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import type { z } from 'zod'
import { WorkspaceId, type WorkspaceResource } from '#specs/service/start-resources.ts'
import { CaissonError, type FleetMember, type Host, type UnpackedWorkspace } from '../index.ts'
import type { Caller } from './callers.ts'
import { ownerField, ownerMetadata } from './ownership.ts'
import { Refusal } from './problems.ts'

/** At once, of all callers. */
const uploadsMax = 8
/** At once, of one caller, so that one with slow uploads keeps nobody else out. */
const ownUploadsMax = 2
/** Of one caller, with those that runs use. */
const workspacesMax = 100
const markDigits = 12

export class Uploads {
  readonly #host: Pick<Host, 'unpackWorkspace'>
  readonly #folder: string
  readonly #fleet: FleetMember | undefined
  /** Uploads under way, by mark of their caller. */
  readonly #underWay: string[] = []

  /**
   * @param folder of the workspaces; made when it is missing
   * @param fleet whose hosts get what is uploaded to one of them. Absent: this host is in none
   */
  constructor(host: Pick<Host, 'unpackWorkspace'>, folder: string, fleet?: FleetMember) {
    this.#host = host
    this.#fleet = fleet
    this.#folder = folder
  }

  /** @throws {Refusal} 400 for an archive that is refused, 413 for one that is too large, 429 for too many */
  async take(
    from: Readable,
    caller: Caller,
    signal?: AbortSignal,
  ): Promise<z.infer<typeof WorkspaceResource>> {
    const mark = markOf(caller)
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const own = (await readdir(this.#folder)).filter(
      (name) => name.endsWith(mark) && name.startsWith('workspace-'),
    )
    const count = Math.max(own.length, (await this.#fleet?.countUploads(mark)) ?? 0)
    if (count >= workspacesMax)
      throw new Refusal(429, 'too_many_requests', `${caller.name} has ${count} uploaded workspaces`, {
        remedy: 'remove runs that use one: DELETE /v1/runs/{run}; `caisson clean` removes unused ones',
      })
    const ofCaller = this.#underWay.filter((other) => other === mark).length
    if (ofCaller >= ownUploadsMax || this.#underWay.length >= uploadsMax)
      throw new Refusal(
        429,
        'too_many_requests',
        `${this.#underWay.length} uploads are under way, ${ofCaller} of ${caller.name}`,
        {
          remedy: 'try again when one has ended',
          headers: { 'retry-after': '5' },
        },
      )
    this.#underWay.push(mark)
    try {
      const id = `workspace-${randomBytes(10).toString('hex')}${mark}`
      const { entries, contentBytes } = await this.#receive(id, from, signal)
      return { id, entries, contentBytes }
    } catch (error) {
      throw asRefusal(error)
    } finally {
      this.#underWay.splice(this.#underWay.indexOf(mark), 1)
    }
  }

  /** Unpacks it here, and keeps it for the other hosts of a fleet once it has proved to be a workspace. */
  async #receive(id: string, from: Readable, signal?: AbortSignal): Promise<UnpackedWorkspace> {
    if (this.#fleet === undefined) return await this.#unpack(id, from, signal)
    let unpacked: UnpackedWorkspace | undefined
    try {
      await this.#fleet.storeUpload(id, from, this.#folder, async (archive) => {
        unpacked = await this.#unpack(id, archive, signal)
      })
    } catch (error) {
      if (unpacked !== undefined) await rm(unpacked.directory, { recursive: true, force: true })
      throw error
    }
    if (unpacked === undefined) throw new CaissonError('internal', 'the archive was not unpacked')
    return unpacked
  }

  async #unpack(id: string, archive: Readable, signal?: AbortSignal): Promise<UnpackedWorkspace> {
    const options = signal === undefined ? {} : { signal }
    return await this.#host.unpackWorkspace(archive, path.join(this.#folder, id), options)
  }

  /** For one that no run uses. What cannot be removed now, the fleet and `caisson clean` remove later. */
  async discard(id: string): Promise<void> {
    await rm(path.join(this.#folder, id), { recursive: true, force: true }).catch(() => undefined)
    await this.#fleet?.removeUpload(id).catch(() => undefined)
  }

  /** The folder here of one that was uploaded to any host of the fleet. @throws {CaissonError} `file_not_found` */
  async bring(id: string): Promise<string> {
    const directory = path.join(this.#folder, id)
    if (await isDirectory(directory)) return directory
    const archive = await this.#fleet?.openUpload(id)
    if (archive === undefined)
      throw new CaissonError('file_not_found', `the fleet has no uploaded workspace ${id}`)
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    await this.#unpack(id, archive).catch(async (error: unknown) => {
      // Another run may have brought it meanwhile.
      if (!(await isDirectory(directory))) throw error
    })
    return directory
  }

  /** The folder of an uploaded workspace. @throws {Refusal} 404 when the caller has none with this id */
  async directoryOf(id: string, caller: Caller): Promise<string> {
    const directory = path.join(this.#folder, id)
    const isMine = caller.scopes.has('admin') || isUploadOf(id, caller)
    if (isMine && (await isDirectory(directory))) return directory
    if (isMine && this.#fleet !== undefined && (await this.#fleet.hasUpload(id))) return await this.bring(id)
    throw new Refusal(404, 'not_found', `there is no uploaded workspace ${id}`, {
      remedy: 'upload it: POST /v1/workspaces',
    })
  }
}

async function isDirectory(place: string): Promise<boolean> {
  return (await stat(place).catch(() => undefined))?.isDirectory() === true
}

/** Whether the name of a folder is the id of a workspace that the caller uploaded. */
export function isUploadOf(name: string, caller: Caller): boolean {
  return WorkspaceId.safeParse(name).success && name.endsWith(markOf(caller))
}

/** In the id, so that nothing besides the folder has to be kept. */
function markOf(caller: Caller): string {
  const name = ownerMetadata(caller)[ownerField] ?? ''
  return createHash('sha256').update(name).digest('hex').slice(0, markDigits)
}

function asRefusal(error: unknown): unknown {
  const { code, message } = CaissonError.from(error)
  if (code === 'invalid_archive') return new Refusal(400, code, message)
  if (code === 'limit_reached') return new Refusal(413, 'body_too_large', message)
  return error
}
