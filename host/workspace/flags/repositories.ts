/**
 * Finds directories that git would treat as a repository although they are not named `.git`, now or after the changes.
 * git requires a HEAD, and either objects and refs or a `commondir`.
 */
import { foldFileName, foldPath } from './folded-path.ts'

interface Parts {
  readonly host: Set<string>
  readonly all: Set<string>
}

const parts: ReadonlySet<string> = new Set(['head', 'objects', 'refs', 'commondir'])

export class Repositories {
  readonly #found = new Map<string, Parts>()

  /** Records a path that exists on the host, or would exist after a change. */
  add(path: string, where: 'host' | 'change'): void {
    const end = path.lastIndexOf('/')
    const name = foldFileName(path.slice(end + 1))
    if (!parts.has(name)) return
    const directory = foldPath(path.slice(0, Math.max(0, end)))
    const found = this.#found.get(directory) ?? { host: new Set(), all: new Set() }
    this.#found.set(directory, found)
    found.all.add(name)
    if (where === 'host') found.host.add(name)
  }

  /**
   * How git treats a folded directory: `whole` is a repository on the host, `new` would be one with the changes,
   * whichever parts they add.
   */
  at(directory: string): 'whole' | 'new' | undefined {
    const found = this.#found.get(directory)
    if (found === undefined || !isRepository(found.all)) return
    return isRepository(found.host) ? 'whole' : 'new'
  }
}

function isRepository(names: ReadonlySet<string>): boolean {
  return names.has('head') && (names.has('commondir') || (names.has('objects') && names.has('refs')))
}
