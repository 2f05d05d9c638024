import { spawn } from 'node:child_process'
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { lockDirectory } from '../../workspace/lock.ts'
import { Bench, treeOf, unwrap } from './support.ts'

const first = 'run-00000000000000000001'
const second = 'run-00000000000000000002'

function prepared(): Bench & { locks: string } {
  const bench = new Bench(treeOf({ 'sub/x': '' }))
  const locks = path.join(bench.home, 'locks')
  mkdirSync(locks)
  return Object.assign(bench, { locks })
}

describe('the lock of a directory', () => {
  it('lets one run in at a time and names the other [S0.12]', () => {
    using bench = prepared()
    const { locks, root } = bench
    const held = unwrap(lockDirectory({ locks, root, runId: first }))
    const refused = lockDirectory({ locks, root, runId: second })
    expect(refused).toMatchObject({
      ok: false,
      error: { code: 'in_use', message: expect.stringContaining(first) },
    })
    held[Symbol.dispose]()
    unwrap(lockDirectory({ locks, root, runId: second }))[Symbol.dispose]()
    expect(readdirSync(locks)).toEqual([])
  })

  it('knows the directory under any path, and what lies in it or holds it [S0.12]', () => {
    using bench = prepared()
    const { locks, root } = bench
    const alias = path.join(bench.home, 'alias')
    symlinkSync(root, alias)
    using held = unwrap(lockDirectory({ locks, root: bench.file('sub'), runId: first }))
    for (const other of [path.join(alias, 'sub'), root]) {
      expect(lockDirectory({ locks, root: other, runId: second })).toMatchObject({
        ok: false,
        error: { code: 'in_use' },
      })
    }
    expect(readdirSync(locks)).toEqual([path.basename(held.file)])
  })

  it('of a process that died, or whose id another has now, is taken over [S0.12]', async () => {
    using bench = prepared()
    const { locks, root } = bench
    const program = `
      const { lockDirectory } = await import(${JSON.stringify(path.resolve('host/workspace/lock.ts'))})
      lockDirectory(${JSON.stringify({ locks, root, runId: first })})
      console.log('held')
      setInterval(() => {}, 1000)`
    const child = spawn(process.execPath, [
      '--conditions=caisson-source',
      '--input-type=module',
      '-e',
      program,
    ])
    await new Promise((resolve) => child.stdout.once('data', resolve))
    expect(lockDirectory({ locks, root, runId: second })).toMatchObject({
      ok: false,
      error: { code: 'in_use' },
    })
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGKILL')
    await ended
    const { file } = unwrap(lockDirectory({ locks, root, runId: second }))
    writeFileSync(
      file,
      JSON.stringify({ runId: first, directory: root, pid: process.pid, started: 'another boot/1' }),
    )
    using held = unwrap(lockDirectory({ locks, root, runId: second }))
    expect(held.file).toBe(file)
  })

  it('is not given away by a holder that lost it [S0.12]', () => {
    using bench = prepared()
    const { locks, root } = bench
    const lost = unwrap(lockDirectory({ locks, root, runId: first }))
    writeFileSync(lost.file, '{}')
    using held = unwrap(lockDirectory({ locks, root, runId: second }))
    lost[Symbol.dispose]()
    expect(readdirSync(locks)).toEqual([path.basename(held.file)])
  })
})
