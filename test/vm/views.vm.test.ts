// Views of the workspace in a real guest: what they begin with, what they keep apart, and how they end.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeTypedFrame, frameKinds } from '#specs/node/typed-frames.ts'
import { writeFiles } from '../../host/test/support/runs.ts'
import { type ProbeVm, startProbeVm } from './probe-vm.ts'

const MIB = 1024 * 1024
let probe: ProbeVm
let workspace: string

beforeAll(async () => {
  workspace = await mkdtemp(join(tmpdir(), 'caisson-views-'))
  await writeFiles(workspace, {
    'kept.txt': 'kept',
    'gone.txt': 'gone',
    'opaque/a': 'a',
    'opaque/b': 'b',
    'moved/deep/f': 'f',
    'moved/deep/g': 'g',
    'left/in/l': 'l',
    'right/in/r': 'r',
  })
  probe = await startProbeVm(192 * MIB, workspace)
})
afterAll(async () => {
  await probe?.[Symbol.asyncDispose]()
  await rm(workspace, { recursive: true, force: true })
})

interface Called {
  readonly result: { readonly ok: boolean; readonly value: { stdout: string; exitCode: number | null } }
}
/** Runs it in the workspace, or in a view. */
async function bash(command: string, view?: string): Promise<string> {
  const options = view === undefined ? {} : { view }
  const request = { op: 'tool', name: 'run_bash', input: { command }, options } as const
  const { result } = await probe.ask<Called>(request)
  if (!result.ok) return JSON.stringify(result)
  return `${result.value.stdout}${result.value.exitCode === 0 ? '' : `exit ${result.value.exitCode}`}`
}
const open = (...views: string[]): Promise<unknown> => probe.ask({ op: 'views-open', views })
const openOver = (source: string, ...views: string[]): Promise<unknown> =>
  probe.ask({ op: 'views-open', views, source })
const close = (...views: string[]): Promise<unknown> => probe.ask({ op: 'views-close', views })
/** Asks for views and is gone before they can be there. */
async function askAndLeave(...ids: string[]): Promise<string> {
  const frame = encodeTypedFrame(
    frameKinds.json,
    Buffer.from(JSON.stringify({ op: 'view_open', ids, source: null })),
  )
  return await probe.ask<string>({ op: 'raw', hex: frame.toString('hex') })
}
const done = { ok: true }
/** Kind, mode, owner, links and content of all that there is. */
const look =
  'find . -printf "%P %y %m %U %n %l\\n" | sort; find . -type f | sort | xargs sha256sum; getfattr -d -m user kept.txt 2>/dev/null || true'

describe('a view of the workspace', () => {
  it('begins as the workspace is, whatever its layers consist of, and shares nothing from then on [A.07]', async () => {
    await bash(
      [
        'rm gone.txt; rm -r opaque; mkdir opaque; echo new > opaque/b',
        'mv moved elsewhere; mkdir moved; echo file > moved/deep; rm elsewhere/deep/g',
        'mv left between; mv right left; mv between right',
        'echo more >> kept.txt; chmod 640 kept.txt; ln kept.txt linked; ln -s kept.txt link; mkfifo pipe; mkdir -m 700 own',
        'truncate -s 40M sparse',
      ].join('\n'),
    )
    const before = await bash(look)
    expect(before).toContain('kept.txt f 640 1000 2')
    expect(await open('a')).toMatchObject({ ok: true, value: [{ path: '/mnt/views/a' }] })
    expect(await bash(look, 'a')).toBe(before)
    await bash('echo in the view > kept.txt; rm -r left; mkdir left; touch left/v', 'a')
    await bash('echo outside > later.txt; rm link')
    expect(await bash('cat kept.txt; ls left; ls later.txt link', 'a')).toBe('in the view\nv\nlink\nexit 2')
    expect(await bash('cat kept.txt; ls left; ls link')).toBe('keptmore\nin\nexit 2')
    expect(await bash('pwd; ls -d /mnt/views /mnt/workspace/..', 'a')).toBe(
      '/mnt/workspace\n/mnt/workspace/..\nexit 2',
    )
    expect(await close('a')).toEqual(done)
    expect(await bash('true', 'a')).toContain('there is no view')
    expect(await close('a')).toEqual(done)
  })

  it('shares one copy with those that begin together, which goes with the last of them, and nothing else [A.07]', async () => {
    await bash('head -c 60M /dev/zero > large; echo before > shared.txt; mkdir -m 750 dir')
    // The disk has room for one copy more, and not for two.
    expect(await open('t1', 't2', 't3')).toMatchObject({
      ok: true,
      value: ['t1', 't2', 't3'].map((id) => ({ path: `/mnt/views/${id}`, start: `/mnt/views/${id}.start` })),
    })
    expect(await open('t4')).toMatchObject({ ok: false, error: { code: 'no_space' } })
    await bash('echo one > shared.txt; rm -r dir', 't1')
    await bash('echo two > shared.txt', 't2')
    const state = 'cat shared.txt; stat -c %a dir; stat -c %s large'
    expect(await bash(state, 't1')).toContain('one\n')
    expect(await bash(state, 't2')).toBe('two\n750\n62914560\n')
    expect(await bash(state, 't3')).toBe('before\n750\n62914560\n')
    expect(await close('t1', 't2')).toEqual(done)
    expect(await bash(state, 't3')).toBe('before\n750\n62914560\n')
    expect(await open('t4')).toMatchObject({ ok: false, error: { code: 'no_space' } })
    expect(await close('t3', 'none')).toEqual(done)
    await expect.poll(() => open('t4'), { timeout: 60_000 }).toMatchObject(done)
    expect(await close('t4')).toEqual(done)
    await bash('rm -r large shared.txt dir')
  })

  it('is of a view too, five deep: each begins as the one below is, and shares nothing from then on [A.07]', async () => {
    await bash('mkdir deep; echo 0 > deep/0; echo 0 > all.txt; mkdir gone; touch gone/a gone/b')
    let below: string | undefined
    for (const depth of [1, 2, 3, 4, 5]) {
      const view = `d${depth}`
      expect(await (below === undefined ? open(view) : openOver(below, view, `${view}b`))).toMatchObject(done)
      if (depth === 3) expect(await bash(look, view)).toBe(await bash(look, below))
      // Whiteouts, opaque and moved directories in each layer; what is copied holds them all.
      await bash(
        `mv deep aside; mkdir deep; mv aside/* deep; rmdir aside; echo ${depth} > deep/${depth}; echo ${depth} >> all.txt; rm -r gone; mkdir gone; touch gone/${depth}`,
        view,
      )
      below = view
    }
    const state = 'ls deep gone | tr "\\n" " "; cat all.txt | tr -d "\\n"'
    expect(await bash(state, 'd5')).toBe('deep: 0 1 2 3 4 5  gone: 5 012345')
    expect(await bash(state, 'd5b')).toBe('deep: 0 1 2 3 4  gone: 4 01234')
    expect(await bash(state, 'd1')).toBe('deep: 0 1  gone: 1 01')
    expect(await bash(state)).toBe('deep: 0  gone: a b 0')
    await bash('echo later > after.txt', 'd2')
    expect(await bash('ls after.txt', 'd3')).toBe('exit 2')
    // A view lasts as long as it is needed, whichever ends first.
    expect(await close('d1', 'd2')).toEqual(done)
    expect(await bash(state, 'd5')).toBe('deep: 0 1 2 3 4 5  gone: 5 012345')
    expect(await openOver('d2', 'd6')).toMatchObject({ ok: false, error: { code: 'bad_request' } })
    expect(await close('d3', 'd4', 'd5', 'd2b', 'd3b', 'd4b', 'd5b')).toEqual(done)
    await bash('rm -r deep all.txt gone')
  })

  it('is not there for one who asked and has gone [A.07]', async () => {
    expect(await askAndLeave('left', 'behind')).toBe('')
    expect(await open('left', 'behind')).toMatchObject(done)
    expect(await close('left', 'behind')).toEqual(done)
  })

  it('is taken while programs write, and lets them continue [A.07]', async () => {
    const writing = bash(
      'for i in $(seq 60); do echo $i > counted.tmp; mv counted.tmp counted; done; cat counted',
    )
    for (const id of ['w1', 'w2', 'w3']) expect(await open(id)).toMatchObject(done)
    expect(await writing).toBe('60\n')
    for (const id of ['w1', 'w2', 'w3']) expect(await close(id)).toEqual(done)
  })

  it('ends with its programs, and with nobody else’s [A.07]', async () => {
    await open('a')
    await open('b')
    const inA = bash('sleep 1000', 'a')
    const inB = bash('sleep 3; echo ended by itself', 'b')
    await expect.poll(() => probe.ask({ op: 'status' })).toMatchObject({ value: { calls: 2 } })
    expect(await close('a')).toEqual(done)
    expect(await inA).toContain('taken away')
    expect(await inB).toBe('ended by itself\n')
    expect(await close('b')).toEqual(done)
  })

  it('is refused when there are too many, twice the same, or no room on the disk; what was begun is cleared away [A.07]', async () => {
    await bash('rm -f sparse; head -c 110M /dev/zero > large')
    expect(await open('full')).toMatchObject({ ok: false, error: { code: 'no_space' } })
    await bash('rm large')
    const ids = Array.from({ length: 96 }, (_, index) => `v${index}`)
    for (const [from, to] of [
      [2, 32],
      [32, 64],
      [64, 96],
    ])
      expect(await open(...ids.slice(from, to))).toMatchObject(done)
    expect(await open('new', 'v3')).toMatchObject({ ok: false, error: { code: 'bad_request' } })
    expect(await open('v0', 'v1', 'more')).toMatchObject({ ok: false, error: { code: 'busy' } })
    for (const id of ['v0', 'v1']) expect(await open(id)).toMatchObject(done)
    expect(await open('more')).toMatchObject({ ok: false, error: { code: 'busy' } })
    for (const from of [0, 32, 64]) expect(await close(...ids.slice(from, from + 32))).toEqual(done)
    expect(await open('full')).toMatchObject(done)
    expect(await close('full')).toEqual(done)
  })

  it('is gone after the end of the agent that had opened it [A.07]', async () => {
    await open('a')
    const again = probe.nextStart()
    void probe.ask({ op: 'exit', code: 7 }).catch(() => undefined)
    expect(await again).toEqual(done)
    expect(await bash('true', 'a')).toContain('there is no view')
    expect(await open('a')).toMatchObject(done)
  })

  it('is gone after a reset of the workspace [A.07]', async () => {
    await open('c')
    expect(await probe.ask({ op: 'reset' })).toEqual(done)
    expect(await probe.ask({ op: 'mount' })).toEqual(done)
    expect(await bash('true', 'c')).toContain('there is no view')
    expect(await open('c')).toMatchObject(done)
    expect(await bash('cat kept.txt gone.txt', 'c')).toBe('keptgone')
    expect(await close('c')).toEqual(done)
  })
})

describe('a workspace that is mounted read-only', () => {
  it('cannot be changed by any program, while their home and /tmp can [A.11]', async () => {
    await bash('echo mine > mine.txt')
    expect(await probe.ask({ op: 'mount-read-only' })).toEqual(done)
    const tries = [
      'touch new',
      'echo x >> kept.txt',
      'echo x >> mine.txt',
      'rm kept.txt',
      'mv kept.txt other',
      'chmod 600 mine.txt',
      'mkdir d',
      'ln -s a b',
      'touch mine.txt',
    ]
    for (const command of tries)
      expect([command, await bash(command)]).toEqual([command, expect.stringMatching(/exit 1$/)])
    expect(await bash('cat mine.txt; echo ok > ~/note; echo ok > /tmp/note; cat ~/note /tmp/note')).toBe(
      'mine\nok\nok\n',
    )
    expect(await probe.ask({ op: 'mount' })).toEqual(done)
    expect(await bash('rm kept.txt; ls')).not.toContain('kept.txt')
  })
})
