/** Two trees with every kind of change between them, and applying and undoing it as tests do. */
import path from 'node:path'
import { type ApplyStep, type ApplySummary, applyChanges } from '../../workspace/apply/apply.ts'
import { undoChanges } from '../../workspace/apply/undo.ts'
import { chooseHunks } from '../../workspace/review/hunks.ts'
import type { Review } from '../../workspace/review/review.ts'
import type { ChangeSelection } from '../../workspace/review/selection.ts'
import { Bench, snapshot, type Tree, treeOf, unwrap } from './support.ts'

export const before = treeOf({
  'a.txt': 'a',
  'crlf.txt': 'x\r\n',
  'del.txt': 'gone soon',
  'dir/in/deep.txt': 'd',
  'dir/keep': 'k',
  'old/x.bin': Buffer.from([0, 1, 2]),
  'run.sh': { kind: 'file', mode: 0o644, content: '#!/bin/sh\n' },
  toDir: 'was a file',
  'toFile/sub/y': 'was a directory',
  toLink: 'was a file',
  link: '-> a.txt',
  'caf\udce9': 'latin',
})
export const after = treeOf({
  'a.txt': 'changed',
  'crlf.txt': 'y\r\n',
  'dir/keep': 'k',
  'new/empty': null,
  'new/big.bin': Buffer.alloc(2_500_000, 5),
  'renamed/x.bin': Buffer.from([0, 1, 2]),
  'run.sh': { kind: 'file', mode: 0o755, content: '#!/bin/sh\n' },
  'toDir/inside': 'now a directory',
  toFile: 'now a file',
  toLink: '-> nowhere',
  link: '-> dir/keep',
  'caf\udce9': 'changed latin',
  private: { kind: 'directory', mode: 0o700 },
})

export async function apply(
  bench: Bench,
  review: Review,
  selection: ChangeSelection = 'all',
  onStep?: (step: ApplyStep) => void,
  parts = chooseHunks(review, selection === 'all' ? {} : (selection.hunks ?? {})).parts,
): Promise<ApplySummary> {
  return unwrap(
    await applyChanges({
      review,
      selection,
      parts,
      runDirectory: bench.run,
      ...(onStep === undefined ? {} : { onStep }),
    }),
  )
}

export async function undo(bench: Bench) {
  return unwrap(await undoChanges({ runDirectory: bench.run }))
}

/** The snapshot that a tree has once it lies on a disk. */
export function expected(tree: Tree): Record<string, string> {
  using bench = new Bench(tree)
  return snapshot(bench.root)
}

/** A process that applies a run's change set, and kills itself at a step if told so. */
export function childProgram(bench: Bench, killAt?: number): string {
  const room = path.resolve('host/workspace')
  return `
    const { applyChanges, readChangeSet, readManifest, reviewChanges } = await import(${JSON.stringify(path.join(room, 'index.ts'))})
    const run = ${JSON.stringify(bench.run)}
    const manifest = (await readManifest(run + '/manifest.jsonl')).value
    const review = (await reviewChanges(manifest, (await readChangeSet(run)).value)).value
    let steps = 0
    const result = await applyChanges({ review, selection: 'all', runDirectory: run, onStep() {
      if (++steps === ${killAt ?? -1}) process.kill(process.pid, 'SIGKILL')
    } })
    console.log(JSON.stringify(result.value))`
}
