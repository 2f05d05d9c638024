/** Workspaces that callers upload: each is a folder beside those that the service makes, and belongs to its caller. */
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import type { z } from 'zod'
import type { WorkspaceResource } from '#specs/service/start-resources.ts'
import { CaissonError, type Host } from '../index.ts'
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
  /** Uploads under way, by mark of their caller. */
  readonly #underWay: string[] = []

  /** @param folder of the workspaces; made when it is missing */
  constructor(host: Pick<Host, 'unpackWorkspace'>, folder: string) {
    this.#host = host
    this.#folder = folder
  }

  /** @throws {Refusal} 400 for an archive that is refused, 413 for one that is too large, 429 for too many */
  async take(
    from: Readable,
    caller: Caller,
    signal: AbortSignal,
  ): Promise<z.infer<typeof WorkspaceResource>> {
    const mark = markOf(caller)
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const own = (await readdir(this.#folder)).filter(
      (name) => name.endsWith(mark) && name.startsWith('workspace-'),
    )
    if (own.length >= workspacesMax)
      throw new Refusal(429, 'too_many_requests', `${caller.name} has ${own.length} uploaded workspaces`, {
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
      const { entries, contentBytes } = await this.#host.unpackWorkspace(from, path.join(this.#folder, id), {
        signal,
      })
      return { id, entries, contentBytes }
    } catch (error) {
      throw asRefusal(error)
    } finally {
      this.#underWay.splice(this.#underWay.indexOf(mark), 1)
    }
  }

  /** The folder of an uploaded workspace. @throws {Refusal} 404 when the caller has none with this id */
  async directoryOf(id: string, caller: Caller): Promise<string> {
    const directory = path.join(this.#folder, id)
    const isMine = caller.scopes.has('admin') || id.endsWith(markOf(caller))
    if (isMine && (await stat(directory).catch(() => undefined))?.isDirectory() === true) return directory
    throw new Refusal(404, 'not_found', `there is no uploaded workspace ${id}`, {
      remedy: 'upload it: POST /v1/workspaces',
    })
  }
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
