import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { spawnHeld } from '../../processes/held-process.ts'
import { findProcessesByArgument } from '../../processes/process-identity.ts'

const MODULE = fileURLToPath(new URL('../../processes/held-process.ts', import.meta.url))

/** A command that stays, and leaves children in both of the ways in which children are left; all have `mark` as an argument. */
function family(mark: string) {
  const stay = 'sh -c "sleep 1000; :" "$0"'
  return { file: '/bin/sh', args: ['-c', `${stay} & (${stay} &) ; ${stay}; :`, mark] }
}

function newMark(): string {
  return `held-${randomBytes(6).toString('hex')}`
}

/** A host process that starts {@link family} between `before` and `after`. */
function startHost(mark: string, after: string, before = ''): ChildProcess {
  const script = `
    import { openSync } from 'node:fs'
    import { spawnHeld } from ${JSON.stringify(MODULE)}
    ${before}
    const child = spawnHeld(${JSON.stringify(family(mark))})
    ${after}`
  const node = [process.execPath, '--conditions=caisson-source', '--input-type=module', '-e', script]
  // Few descriptors, so that one can use them up.
  return spawn('/bin/sh', ['-c', 'ulimit -n 100; exec "$@"', 'sh', ...node], {
    stdio: ['ignore', 'inherit', 'pipe'],
  })
}

async function waitForCount(mark: string, isEnough: (count: number) => boolean): Promise<void> {
  // The host has the mark within its script, not as an argument.
  await expect.poll(async () => isEnough((await findProcessesByArgument(mark)).length)).toBe(true)
}

it('ends with the host process, with all that it started [V.06]', async () => {
  const mark = newMark()
  const host = startHost(mark, 'setInterval(() => {}, 1000)')
  // The command, its watcher, and three children.
  await waitForCount(mark, (count) => count >= 5)
  host.kill('SIGKILL')
  await waitForCount(mark, (count) => count === 0)
})

it('does not outlive a host that died before the command began [V.06]', async () => {
  const mark = newMark()
  const host = startHost(mark, `process.kill(process.pid, 'SIGKILL')`)
  await once(host, 'exit')
  await waitForCount(mark, (count) => count === 0)
})

it('leaves nothing behind that it started, whether it ends or is ended [V.06]', async () => {
  const mark = newMark()
  const child = spawnHeld({ file: '/bin/sh', args: ['-c', 'sh -c "sleep 1000; :" "$0" & exit 3', mark] })
  expect(await once(child, 'exit')).toEqual([3, null])
  await waitForCount(mark, (count) => count === 0)
})

it('ends when its watcher is killed: nothing would end it with the host [V.06]', async () => {
  const child = spawnHeld({ file: '/bin/sleep', args: ['1000'] })
  const [watcher] = await childrenOf(child)
  process.kill(watcher ?? 0, 'SIGKILL')
  expect(await once(child, 'exit')).toEqual([null, 'SIGKILL'])
})

it('tells a host that has no descriptors left, which continues [V.06]', async () => {
  const host = startHost(
    newMark(),
    '',
    `try { for (;;) openSync('/dev/null') } catch {}
    process.once('uncaughtException', ({ message }) => {
      console.error(message)
      setImmediate(() => console.error('continues'))
    })`,
  )
  expect(host.stderr && (await text(host.stderr))).toBe(
    'spawn: no file descriptors are left (EMFILE)\ncontinues\n',
  )
})

it('gives the command its descriptors, and their ends when it ends', async () => {
  const child = spawnHeld(
    { file: '/bin/sh', args: ['-c', 'echo four >&4; echo nine >&9; exec 9>&-; sleep 1000'] },
    [...Array.from({ length: 6 }, () => 'pipe' as const)],
  )
  const stdio: readonly unknown[] = child.stdio
  const [four, nine] = [stdio[4], stdio[9]] as [Readable, Readable]
  // It lives, and has closed this one: the watcher must not hold it open.
  expect(await text(nine)).toBe('nine\n')
  child.kill('SIGKILL')
  expect(await text(four)).toBe('four\n')
})

/** Pids of its children, once there are any. */
async function childrenOf({ pid = 0 }: ChildProcess): Promise<number[]> {
  const list = async () =>
    (await parentsOfAll()).flatMap(([child, parent]) =>
      parent === pid && child !== undefined ? [child] : [],
    )
  await expect.poll(async () => (await list()).length).toBeGreaterThan(0)
  return await list()
}

/** Pid and parent of every process; a minimal Linux has /proc and no ps. */
async function parentsOfAll(): Promise<(number | undefined)[][]> {
  if (process.platform === 'linux') {
    const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
    return pids.map((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
        return [Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])]
      } catch {
        return []
      }
    })
  }
  const ps = spawn('ps', ['-axo', 'pid=,ppid='], { stdio: ['ignore', 'pipe', 'inherit'] })
  return (await text(ps.stdout)).split('\n').map((row) => row.trim().split(/\s+/).map(Number))
}
