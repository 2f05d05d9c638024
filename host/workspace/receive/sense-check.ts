/**
 * Checks the entries of a change set against the manifest and each other, so that they can be applied one by one:
 * nothing is below a non-directory, and only existing paths are deleted or change their mode.
 */
import { ChangeStreamError } from '#specs/node/change-stream.ts'
import { encodePath } from '#specs/node/path-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { StoredChange } from '../change-set.ts'
import type { Manifest } from '../manifest.ts'

/** An entry whose subtree is not complete. */
interface OpenEntry {
  readonly path: string
  readonly kind: StoredChange['kind']
  /** Whether it, or a parent, is a new directory: then nothing below it was copied into the VM. */
  readonly isNew: boolean
}

export class SenseCheck {
  readonly #manifest: Manifest
  /** Outermost first. */
  readonly #open: OpenEntry[] = []

  constructor(manifest: Manifest) {
    this.#manifest = manifest
  }

  /** Accepts the next entry. @throws {ChangeStreamError} when it is inconsistent */
  next(entry: { kind: StoredChange['kind']; path: string }): void {
    const { path, kind } = entry
    if (encodePath(path).length > limits.pathMaxBytes) refuse(path, 'its path is too long')
    if (path.split('/').some((name) => encodePath(name).length > limits.nameMaxBytes))
      refuse(path, 'a name in it is too long')
    while (this.#open.length > 0 && !path.startsWith(`${this.#open.at(-1)?.path}/`)) this.#open.pop()
    const above = this.#open.at(-1)
    const parent = path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : ''
    if (parent !== '') this.#checkParent(path, parent, above)
    const before = above?.isNew === true ? undefined : this.#manifest.entries.get(path)
    if (kind === 'deleted' && before === undefined) refuse(path, 'it is deleted but never went in')
    if (kind === 'mode' && (before === undefined || before.kind === 'link')) {
      refuse(path, 'its mode changed but no file or directory of that path went in')
    }
    const isNew = above?.isNew === true || (kind === 'directory' && before?.kind !== 'directory')
    this.#open.push({ path, kind, isNew })
  }

  #checkParent(path: string, parent: string, above: OpenEntry | undefined): void {
    if (above?.path === parent) {
      if (above.kind === 'directory') return
      if (above.kind === 'mode' && this.#manifest.entries.get(parent)?.kind === 'directory') return
      refuse(path, `"${parent}" above it is no directory in the same change set`)
    }
    if (above?.isNew === true) refuse(path, `the directory "${parent}" above it is missing`)
    if (above !== undefined && above.kind !== 'directory' && above.kind !== 'mode') {
      refuse(path, `"${above.path}" above it is no directory in the same change set`)
    }
    if (this.#manifest.entries.get(parent)?.kind !== 'directory') {
      refuse(path, `"${parent}" above it is no directory`)
    }
  }
}

function refuse(path: string, why: string): never {
  throw new ChangeStreamError(`"${path.slice(0, 200)}": ${why}`)
}
