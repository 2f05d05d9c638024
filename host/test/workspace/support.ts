/** Trees for the workspace's tests: made, looked at, compared, and the change stream between two of them. */
import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { encodeChanges, type PathChange } from '#specs/node/change-encoder.ts'
import { comparePaths, decodePath, encodePath } from '#specs/node/path-text.ts'
import type { ChangeSet } from '../../workspace/change-set.ts'
import type { Manifest } from '../../workspace/manifest.ts'
import { receiveChanges } from '../../workspace/receive/receive.ts'
import { type Review, type ReviewItem, reviewChanges } from '../../workspace/review/review.ts'
import { buildDisk } from '../../workspace/scan/disk.ts'
import { type ScanOptions, scanWorkspace } from '../../workspace/scan/scan.ts'
import type { WorkspaceResult } from '../../workspace/workspace-error.ts'

export type TreeNode =
  | { readonly kind: 'file'; readonly mode: number; readonly content: string | Buffer }
  | { readonly kind: 'directory'; readonly mode: number }
  | { readonly kind: 'link'; readonly target: string }
export type Tree = ReadonlyMap<string, TreeNode>

/** Shorthand: text is a file, null an empty directory, `-> x` a link. */
export type Sketch = Readonly<Record<string, string | Buffer | null | TreeNode>>

export function treeOf(sketch: Sketch): Tree {
  const tree = new Map<string, TreeNode>()
  for (const [name, value] of Object.entries(sketch)) {
    for (let at = name.indexOf('/'); at > 0; at = name.indexOf('/', at + 1)) {
      const above = name.slice(0, at)
      if (!tree.has(above)) tree.set(above, { kind: 'directory', mode: 0o755 })
    }
    tree.set(name, nodeOf(value))
  }
  return new Map([...tree].sort(([a], [b]) => comparePaths(a, b)))
}

function nodeOf(value: Sketch[string]): TreeNode {
  if (value === null || value === undefined) return { kind: 'directory', mode: 0o755 }
  if (typeof value === 'string' && value.startsWith('-> ')) return { kind: 'link', target: value.slice(3) }
  if (typeof value === 'string' || Buffer.isBuffer(value))
    return { kind: 'file', mode: 0o644, content: value }
  return value
}

function at(root: string, name: string): Buffer {
  return Buffer.concat([Buffer.from(`${root}/`), encodePath(name)])
}

/** Puts a tree into an empty directory. */
export function writeTree(root: string, tree: Tree): void {
  for (const [name, node] of tree) {
    const place = at(root, name)
    if (node.kind === 'directory') mkdirSync(place)
    else if (node.kind === 'link') symlinkSync(encodePath(node.target), place)
    else writeFileSync(place, node.content)
    if (node.kind !== 'link') chmodSync(place, node.mode)
  }
}

/** What lies in a directory, contents as digests, so that two can be compared with toEqual. */
export function snapshot(root: string): Record<string, string> {
  const found: Record<string, string> = {}
  const visit = (folder: string) => {
    for (const raw of readdirSync(folder === '' ? root : at(root, folder), { encoding: 'buffer' })) {
      const name = folder === '' ? decodePath(raw) : `${folder}/${decodePath(raw)}`
      const place = at(root, name)
      const stat = lstatSync(place)
      const mode = (stat.mode & 0o7777).toString(8)
      if (stat.isSymbolicLink())
        found[name] = `link ${decodePath(readlinkSync(place, { encoding: 'buffer' }))}`
      else if (stat.isDirectory()) {
        found[name] = `directory ${mode}`
        visit(name)
      } else if (stat.isFile()) found[name] = `file ${mode} ${digest(readFileSync(place))}`
      else found[name] = 'other'
    }
  }
  visit('')
  return found
}

export function digest(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

/** What the guest would send for a workspace that became `after`. */
export function changesBetween(before: Tree, after: Tree): { entry: PathChange; content?: Buffer }[] {
  const changes: { entry: PathChange; content?: Buffer }[] = []
  const gone: string[] = []
  for (const name of [...new Set([...before.keys(), ...after.keys()])].sort(comparePaths)) {
    const [old, now] = [before.get(name), after.get(name)]
    if (now === undefined) {
      if (gone.some((above) => name.startsWith(`${above}/`))) continue
      gone.push(name)
      changes.push({ entry: { kind: 'deleted', path: name } })
    } else if (now.kind === 'file') {
      const content = Buffer.from(now.content)
      const isSame = old?.kind === 'file' && Buffer.from(old.content).equals(content)
      if (!isSame)
        changes.push({ entry: { kind: 'file', path: name, mode: now.mode, size: content.length }, content })
      else if (old.mode !== now.mode) changes.push({ entry: { kind: 'mode', path: name, mode: now.mode } })
    } else if (now.kind === 'link') {
      if (old?.kind !== 'link' || old.target !== now.target) {
        changes.push({ entry: { kind: 'link', path: name, target: now.target } })
      }
    } else if (old?.kind !== 'directory')
      changes.push({ entry: { kind: 'directory', path: name, mode: now.mode } })
    else if (old.mode !== now.mode) changes.push({ entry: { kind: 'mode', path: name, mode: now.mode } })
    if (now !== undefined && now.kind !== 'directory' && old?.kind === 'directory') gone.push(name)
  }
  return changes
}

/** Counts how often another task of the process has its turn during `work`. */
export async function turnsDuring(work: () => Promise<unknown>): Promise<number> {
  let turns = 0
  let isDone = false
  const ticking = (async () => {
    for (; !isDone; turns++) await nextTurn()
  })()
  await work()
  isDone = true
  await ticking
  return turns
}

export function unwrap<T>(result: WorkspaceResult<T>): T {
  if (!result.ok) throw new Error(`${result.error.code}: ${result.error.message}`)
  return result.value
}

/** In memory where there is such a place: these tests wait for the disk thousands of times. */
const scratch = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()

/** A workspace on the host and a run's directory beside it; gone at the end of the test. */
export class Bench implements Disposable {
  readonly home = mkdtempSync(path.join(scratch, 'caisson-workspace-'))
  readonly root = path.join(this.home, 'project')
  readonly run = path.join(this.home, 'run')
  #disks = 0
  #received: ChangeSet | undefined

  constructor(tree: Tree = new Map()) {
    mkdirSync(this.root)
    chmodSync(this.root, 0o755)
    mkdirSync(this.run)
    writeTree(this.root, tree)
  }

  file(name: string): string {
    return path.join(this.root, name)
  }

  async scan(options: Partial<ScanOptions> = {}) {
    return scanWorkspace({ directory: this.root, ownFolders: [], home: '/nonexistent', ...options })
  }

  /** Takes the workspace in. */
  async takeIn(options: Partial<ScanOptions> = {}): Promise<{ manifest: Manifest; disk: string }> {
    const scan = unwrap(await this.scan(options))
    const disk = path.join(this.home, `disk-${this.#disks++}`)
    const { manifest } = unwrap(await buildDisk({ scan, file: disk, diskBytes: 64 * 1024 * 1024 }))
    return { manifest, disk }
  }

  /** Receives a change set. */
  async receive(manifest: Manifest, changes: Iterable<{ entry: PathChange; content?: Buffer }>) {
    return receiveChanges({ source: encodeChanges(changes), manifest, runDirectory: this.run, spareBytes: 0 })
  }

  /** The review of a workspace that went in as it is and became `after` in the VM. */
  async review(before: Tree, after: Tree): Promise<Review> {
    const { manifest } = await this.takeIn()
    const wentIn = new Map([...before].filter(([name]) => manifest.entries.has(name)))
    this.#received = unwrap(await this.receive(manifest, changesBetween(wentIn, after)))
    return unwrap(await reviewChanges(manifest, this.#received))
  }

  /** The same change set against the host as it is now. */
  async again(review: Review): Promise<Review> {
    return unwrap(await reviewChanges(review.index.manifest, this.#received ?? review.changes))
  }

  [Symbol.dispose](): void {
    rmSync(this.home, { recursive: true, force: true })
  }
}

/** The items of a review by path: `before` went in, `after` came out, and `meddle` happened to the host meanwhile. */
export async function itemsOf(
  before: Sketch,
  after: Sketch,
  meddle: (bench: Bench) => void = () => {},
): Promise<Map<string, ReviewItem>> {
  using bench = new Bench(treeOf(before))
  using review = await (async () => {
    const made = await bench.review(treeOf(before), treeOf(after))
    made[Symbol.dispose]()
    meddle(bench)
    return await bench.again(made)
  })()
  return new Map(review.items.map((item) => [item.path, item]))
}
