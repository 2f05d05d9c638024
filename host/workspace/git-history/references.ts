/**
 * Reads the files that define where a repository's history ends (HEAD, refs, packed-refs, logs, index), on the host and
 * after the change set.
 */
import type { Root } from '#specs/node/descriptor-walk.ts'
import { readWhole, type StoredChange } from '../change-set.ts'
import { NotExaminable } from './budget.ts'
import type { HistorySurroundings } from './objects.ts'

/** Maximum bytes of a reference file; ten thousand log lines are two million. */
const TEXT_MAX_BYTES = 16 * 1024 * 1024
/** Folder of set-aside commits, which belong to no branch yet. */
export const asideFolder = 'refs/caisson'

/** Whether a path below the repository's directory defines where history ends. */
export function isReference(below: string): boolean {
  return /^(worktrees\/[^/]+\/)?([a-z_]*head|packed-refs|index|shallow|(refs|logs)(\/.*)?)$/is.test(below)
}

export function isIndex(below: string): boolean {
  return /^(worktrees\/[^/]+\/)?index$/i.test(below)
}

interface GitReference {
  readonly id: string
  /** Offset of the object's name in the change set's contents; only for references from the change set. */
  readonly offset?: number
}

/** One moved, new or deleted branch, tag or HEAD. */
export interface MovedReference {
  /** git's name: `HEAD`, `refs/heads/main`. */
  readonly name: string
  readonly from?: string
  readonly to?: string
  readonly offset?: number
}

/** The content of a repository's reference files, before and after. */
export class References {
  /** Objects from which the host's own history is reachable. */
  readonly hostIds: ReadonlySet<string>
  /** Objects that the change set names and the host does not. */
  readonly newIds: ReadonlySet<string>
  readonly moved: readonly MovedReference[]
  /** Why references must be named regardless of their targets; undefined if not. */
  readonly problem: string | undefined
  /** The object of the host's HEAD. */
  readonly hostHead: string | undefined
  readonly #around: HistorySurroundings
  readonly #directory: string
  readonly #idLength: number

  /** @throws {NotExaminable} */
  constructor(around: HistorySurroundings, directory: string, idBytes: number) {
    this.#around = around
    this.#directory = directory
    this.#idLength = idBytes * 2
    const host = this.#readHost()
    const changed = this.#readChanged()
    this.hostIds = host.ids
    this.newIds = changed.ids.difference(host.ids)
    this.moved = movedReferences(host.references, changed, (name) => this.#isDeleted(name))
    this.problem = problemOf(this.moved, changed.texts)
    this.hostHead = resolveHead(host.texts.get('HEAD'), host.references, this.#idLength)
  }

  #readHost() {
    const { root, index } = this.#around
    const ids = new Set<string>()
    const texts = new Map<string, string>()
    for (const path of index.below(this.#directory)) {
      const below = path.slice(this.#directory.length + 1)
      if (index.get(path)?.kind !== 'file' || !isReference(below) || isIndex(below) || isAside(below))
        continue
      const text = readHostText(root, path)
      if (text === undefined) continue
      texts.set(below, text)
      for (const id of this.#idsOf(below, text)) ids.add(id)
    }
    return { ids, texts, references: this.#referencesOf(texts, () => 0) }
  }

  #readChanged() {
    const ids = new Set<string>()
    const texts = new Map<string, string>()
    const offsets = new Map<string, number>()
    for (const change of this.#around.changes.values()) {
      if (change.kind !== 'file' || !change.path.startsWith(`${this.#directory}/`)) continue
      const below = change.path.slice(this.#directory.length + 1)
      if (!isReference(below) || isIndex(below)) continue
      const text = readChangedText(this.#around, change)
      texts.set(below, text)
      offsets.set(below, change.offset)
      for (const id of this.#idsOf(below, text)) ids.add(id)
    }
    return { ids, texts, references: this.#referencesOf(texts, (below) => offsets.get(below) ?? 0) }
  }

  /**
   * The object names in a file. A log line has two.
   * @throws {NotExaminable} on a line that git does not write: the file may be something else
   */
  #idsOf(below: string, text: string): string[] {
    const id = `[0-9a-f]{${this.#idLength}}`
    const line = new RegExp(
      /(^|\/)logs\//.test(below) ? `^(${id}) (${id}) ` : `^(?:\\^?(${id})(?:\\s.*)?|ref: \\S+\\s*|#.*)$`,
    )
    const ids: string[] = []
    for (const one of text.split('\n')) {
      if (one === '') continue
      const found = line.exec(one)
      if (found === null) throw new NotExaminable('a file of it has a line that is not of its form')
      ids.push(...found.slice(1).filter((name) => name !== undefined && !/^0+$/.test(name)))
    }
    return ids
  }

  /** Branches, tags and HEAD with their objects; a loose file takes precedence over packed-refs. */
  #referencesOf(
    texts: ReadonlyMap<string, string>,
    offsetOf: (below: string) => number,
  ): Map<string, GitReference> {
    const references = new Map<string, GitReference>()
    const id = new RegExp(`^[0-9a-f]{${this.#idLength}}`)
    let at = 0
    for (const line of (texts.get('packed-refs') ?? '').split('\n')) {
      const found = id.exec(line)?.[0]
      if (found !== undefined && line[this.#idLength] === ' ')
        references.set(line.slice(this.#idLength + 1), { id: found, offset: offsetOf('packed-refs') + at })
      at += line.length + 1
    }
    for (const [below, text] of texts) {
      const found = id.exec(text)?.[0]
      if (found !== undefined && (below === 'HEAD' || below.startsWith('refs/')))
        references.set(below, { id: found, offset: offsetOf(below) })
    }
    return references
  }

  #isDeleted(name: string): boolean {
    for (let at = `${this.#directory}/${name}`; at !== this.#directory; at = at.slice(0, at.lastIndexOf('/')))
      if (this.#around.changes.get(at)?.kind === 'deleted') return true
    return false
  }
}

function isAside(below: string): boolean {
  return below.startsWith(`${asideFolder}/`) || below.startsWith(`logs/${asideFolder}/`)
}

function movedReferences(
  host: ReadonlyMap<string, GitReference>,
  changed: { readonly references: ReadonlyMap<string, GitReference> },
  isDeleted: (name: string) => boolean,
): MovedReference[] {
  const moved: MovedReference[] = []
  for (const [name, { id, offset }] of changed.references) {
    const from = host.get(name)?.id
    if (from === id) continue
    moved.push({
      name,
      to: id,
      ...(offset === undefined ? {} : { offset }),
      ...(from === undefined ? {} : { from }),
    })
  }
  for (const [name, { id }] of host)
    if (isDeleted(name) && !changed.references.has(name)) moved.push({ name, from: id })
  return moved
}

/** Names that git treats as other objects, and links to commits that were only set aside. */
function problemOf(
  moved: readonly MovedReference[],
  changed: ReadonlyMap<string, string>,
): string | undefined {
  const names = moved.map(({ name }) => name.toLowerCase())
  if (names.some((name) => name.startsWith('refs/replace/')))
    return 'it has objects that stand in for others (refs/replace)'
  if (names.some((name) => name.startsWith(`${asideFolder}/`)))
    return 'it changes refs/caisson, where commits of earlier runs are kept'
  for (const text of changed.values()) {
    const target = /^ref:\s*(\S+)/.exec(text)?.[1]
    if (target !== undefined && !/^refs\/(heads|remotes|tags)\//.test(target))
      return 'a reference leads to another that is no branch or tag'
  }
  return undefined
}

function resolveHead(
  text: string | undefined,
  references: ReadonlyMap<string, GitReference>,
  idLength: number,
): string | undefined {
  if (text === undefined) return
  const name = /^ref:\s*(\S+)/.exec(text)?.[1]
  if (name !== undefined) return references.get(name)?.id
  return new RegExp(`^[0-9a-f]{${idLength}}`).exec(text)?.[0]
}

/** Reads a plain host file as bytes. @throws {NotExaminable} when it is too large */
export function readHostBytes(root: Root, path: string, maxBytes: number): Buffer | undefined {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return
  using place = located.value
  const opened = place.openFile()
  if (!opened.ok) return
  using file = opened.value
  if (file.stat.size > maxBytes) throw new NotExaminable('a file of it is too large')
  return readWhole(file.fd, 0, file.stat.size)
}

function readHostText(root: Root, path: string): string | undefined {
  return readHostBytes(root, path, TEXT_MAX_BYTES)?.toString('latin1')
}

export function readChangedBytes(
  around: HistorySurroundings,
  change: Extract<StoredChange, { kind: 'file' }>,
  maxBytes: number,
): Buffer {
  if (change.size > maxBytes) throw new NotExaminable('a file of it is too large')
  return readWhole(around.contents, change.offset, change.size)
}

function readChangedText(
  around: HistorySurroundings,
  change: Extract<StoredChange, { kind: 'file' }>,
): string {
  return readChangedBytes(around, change, TEXT_MAX_BYTES).toString('latin1')
}
