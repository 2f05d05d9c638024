/** A store whose workflows are the files of a folder. A file is found by its content, whatever its name. */
import { randomUUID } from 'node:crypto'
import { link, mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf, reasonOf } from '#specs/node/file-error.ts'
import { listFolder, loadFile, pathOf, WorkflowError } from './workflow-file.ts'
import type { StoredWorkflow, WorkflowStore } from './workflow-store.ts'

/** Bytes of a file name that every file system of Linux takes. */
const nameMaxBytes = 240

export class FolderWorkflowStore implements WorkflowStore {
  readonly folder: string

  /** @param folder a path or a `file:` URL; made by the first `put` @throws {WorkflowError} for another value */
  constructor(folder: string | URL) {
    this.folder = path.resolve(pathOf(folder))
  }

  /** @throws {WorkflowError} where two files have it */
  async get(name: string, version: string): Promise<string | null> {
    const found = (await this.#files()).filter(
      ({ workflow }) => workflow.agent === name && workflow.version === version,
    )
    const [first, second] = found
    if (first === undefined) return null
    if (second === undefined) return (await loadFile(first.file)).text
    const [one, other] = [path.basename(first.file), path.basename(second.file)]
    throw new WorkflowError(`"${name}@${version}" is in ${one} and in ${other}`, [])
  }

  async list(): Promise<StoredWorkflow[]> {
    const stored: StoredWorkflow[] = []
    for (const { file } of await this.#files()) {
      const { workflow, sha256 } = await loadFile(file)
      stored.push({ name: workflow.agent, version: workflow.version, sha256 })
    }
    return stored
  }

  /** Writes `NAME@VERSION.workflow.json`, whole or not at all. */
  async put({ name, version, text }: StoredWorkflow & { readonly text: string }): Promise<void> {
    // Encoded, so that neither is a path.
    const entry = `${encodeURIComponent(name)}@${encodeURIComponent(version)}.workflow.json`
    if (Buffer.byteLength(entry) > nameMaxBytes)
      throw new WorkflowError(`${name}@${version} is too long for the name of a file`, [])
    const part = path.join(this.folder, `.${randomUUID()}.part`)
    try {
      await mkdir(this.folder, { recursive: true, mode: 0o700 })
      await writeFile(part, text, { flag: 'wx', flush: true })
      // Unlike a rename, it replaces no file.
      await link(part, path.join(this.folder, entry))
    } catch (cause) {
      if (errnoOf(cause) !== 'EEXIST')
        throw new CaissonError(
          'state_unavailable',
          `cannot write ${path.join(this.folder, entry)}: ${reasonOf(cause)}`,
          { cause },
        )
    } finally {
      await rm(part, { force: true })
    }
  }

  async remove(name: string, version: string): Promise<void> {
    for (const { file, workflow } of await this.#files())
      if (workflow.agent === name && workflow.version === version) await rm(file, { force: true })
  }

  async #files() {
    const files = await listFolder(this.folder).catch((error: unknown) => {
      if (error instanceof WorkflowError && errnoOf(error.cause) === 'ENOENT') return []
      throw error
    })
    return files.flatMap(({ file, workflow }) => (workflow === null ? [] : [{ file, workflow }]))
  }
}
