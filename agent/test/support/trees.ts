/** Directory trees for tests: random ones, random work done on them, what is in them, and change sets applied to them. */
import { Buffer } from 'node:buffer'
import { hash } from 'node:crypto'
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import type { PathChange } from '#specs/node/change-encoder.ts'
import { decodeChanges } from '#specs/node/change-stream.ts'

/** What a tree holds: path to kind, mode and a content's hash, as one comparable text. */
export type Snapshot = Readonly<Record<string, string>>

/** A new folder that is removed when the scope ends. */
export function temporaryFolder(): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(tmpdir(), 'caisson-test-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

/** All below `root`; modes of the permission bits alone. */
export function snapshot(root: string, below = ''): Snapshot {
  const found: Record<string, string> = {}
  for (const name of readdirSync(join(root, below))) {
    const path = below === '' ? name : `${below}/${name}`
    const stat = lstatSync(join(root, path))
    const mode = (stat.mode & 0o777).toString(8)
    if (stat.isSymbolicLink()) found[path] = `link ${readlinkSync(join(root, path))}`
    else if (stat.isDirectory()) Object.assign(found, { [path]: `directory ${mode}` }, snapshot(root, path))
    else if (!stat.isFile()) found[path] = `other ${mode}`
    else found[path] = `file ${mode} ${hash('sha256', readFileSync(join(root, path)))}`
  }
  return found
}

/** Makes the tree of a change set out of `root`, the base. Returns what was unsupported. */
export async function applyChanges(root: string, stream: AsyncIterable<Uint8Array>): Promise<PathChange[]> {
  const left: PathChange[] = []
  for await (const { entry, content } of decodeChanges(stream)) {
    const at = join(root, entry.path)
    if (entry.kind === 'unsupported') left.push(entry)
    else if (entry.kind === 'mode') chmodSync(at, entry.mode)
    else rmSync(at, { recursive: true, force: true })
    if (entry.kind === 'directory') mkdirSync(at)
    if (entry.kind === 'link') symlinkSync(entry.target, at)
    if (entry.kind === 'file') {
      const pieces: Buffer[] = []
      for await (const piece of content) pieces.push(Buffer.from(piece))
      writeFileSync(at, Buffer.concat(pieces))
    }
    if (entry.kind === 'file' || entry.kind === 'directory') chmodSync(at, entry.mode)
  }
  return left
}

/** One piece of work on a tree; `pick` and `other` choose among what is there. */
export type Operation =
  | { do: 'write'; name: string; pick: number; content: string; mode: number }
  | { do: 'mkdir' | 'link'; name: string; pick: number }
  | { do: 'chmod'; pick: number; mode: number }
  | { do: 'delete' | 'flip'; pick: number }
  | { do: 'rename'; pick: number; other: number; name: string }

const name = fc.constantFrom('a', 'b', 'c', 'a-b', 'ä', 'z.txt')
const pick = fc.nat(1000)
const mode = fc.constantFrom(0o644, 0o600, 0o755, 0o444, 0o664)
const content = fc.oneof(
  fc.string({ maxLength: 20 }),
  fc.constantFrom('x'.repeat(70_000), `${'x'.repeat(70_000)}y`, 'x'.repeat(65_536)),
)
export const operations: fc.Arbitrary<Operation[]> = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constant('write' as const), name, pick, content, mode }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('mkdir' as const), name, pick }) },
    fc.record({ do: fc.constant('link' as const), name, pick }),
    fc.record({ do: fc.constant('chmod' as const), pick, mode }),
    fc.record({ do: fc.constantFrom('delete' as const, 'flip' as const), pick }),
    fc.record({ do: fc.constant('rename' as const), pick, other: pick, name }),
  ),
  { maxLength: 25 },
)

/** Does the work; what is not possible is passed over. */
export function perform(root: string, work: readonly Operation[]): void {
  for (const operation of work) {
    try {
      performOne(root, operation)
    } catch (thrown) {
      if (!(thrown instanceof Error && 'code' in thrown)) throw thrown
    }
  }
}

function performOne(root: string, operation: Operation): void {
  const all = Object.entries(snapshot(root))
  const directories = ['', ...all.filter(([, what]) => what.startsWith('directory')).map(([path]) => path)]
  const place = (index: number, of: string): string =>
    join(root, directories[index % directories.length] ?? '', of)
  const existing = (index: number): string => join(root, all[index % Math.max(1, all.length)]?.[0] ?? 'none')
  switch (operation.do) {
    case 'write':
      writeFileSync(place(operation.pick, operation.name), operation.content, { mode: operation.mode })
      return
    case 'mkdir':
      mkdirSync(place(operation.pick, operation.name))
      return
    case 'link':
      symlinkSync(`../${operation.name}`, place(operation.pick, operation.name))
      return
    case 'chmod':
      if (!lstatSync(existing(operation.pick)).isSymbolicLink()) {
        const isDirectory = lstatSync(existing(operation.pick)).isDirectory()
        chmodSync(existing(operation.pick), isDirectory ? operation.mode | 0o700 : operation.mode)
      }
      return
    case 'delete':
      rmSync(existing(operation.pick), { recursive: true })
      return
    case 'flip': {
      // The same size with other bytes: only a comparison of content can tell.
      const bytes = readFileSync(existing(operation.pick))
      const last = bytes.length - 1
      bytes[last] = (bytes[last] ?? 0) ^ 1
      writeFileSync(existing(operation.pick), bytes)
      return
    }
    case 'rename':
      renameSync(existing(operation.pick), place(operation.other, operation.name))
      return
  }
}
