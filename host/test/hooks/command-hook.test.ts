// Hooks that are real programs: what they get, what they may say, and what is left of them.
import { execFileSync, spawn } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { HookPoint } from '#specs/protocol/hook.ts'
import { commandHook } from '../../hooks/command-hook.ts'
import type { HookInput } from '../../hooks/hook.ts'
import { RunHooks } from '../../hooks/run-hooks.ts'
import { findProcessesByArgument } from '../../processes/process-identity.ts'
import { closeToPrograms } from '../../processes/programs.ts'

const runId = `run-${'0'.repeat(20)}`
const never = new AbortController().signal

/** A folder that programs may come from: below the home folder nobody else writes. */
function folder(): string {
  const made = realpathSync(mkdtempSync(path.join(homedir(), '.caisson-hook-test-')))
  onTestFinished(() => rmSync(made, { recursive: true, force: true }))
  return made
}

function program(script: string, where = folder()): string {
  const file = path.join(where, 'guard')
  writeFileSync(file, `#!/bin/sh\n${script}\n`)
  chmodSync(file, 0o755)
  return file
}

const input: HookInput<'before-tool'> = {
  version: 1,
  point: 'before-tool',
  runId,
  agentPath: 'root/pen',
  stepId: 's',
  callId: 'c',
  tool: 'run_bash',
  arguments: { command: 'ls' },
}
const ask = (
  script: string,
  config: { point?: HookPoint; timeoutMs?: number } = {},
  env = process.env,
  signal = never,
) =>
  commandHook({ point: 'before-tool', ...config, command: [program(script), '--strict'] }, env).ask(
    input,
    signal,
  )

describe('a command', () => {
  it('learns what happens as JSON, in a version, and where it is in its environment [A.10]', async () => {
    const where = folder()
    const out = path.join(where, 'seen')
    const env = {
      PATH: process.env.PATH,
      HOME: homedir(),
      NVIDIA_API_KEY: 'nvapi-secret',
      CAISSON_HOME: '/x',
      LANG: 'C.UTF-8',
    }
    const file = program(`cat > ${out}; { pwd; env; echo "$@"; } >> ${out}`, where)
    const hook = commandHook({ point: 'before-tool', command: [file, '--strict'] }, env)
    expect(await hook.ask(input, never)).toEqual({ ok: true, value: { decision: 'allow' } })
    const [json = '', cwd, ...rest] = readFileSync(out, 'utf8').split('\n')
    expect(JSON.parse(json)).toEqual(input)
    expect(cwd).toBe(realpathSync(homedir()))
    expect(rest).toContain(`CAISSON_RUN_ID=${runId}`)
    expect(rest).toContain('CAISSON_HOOK_POINT=before-tool')
    expect(rest).toContain('LANG=C.UTF-8')
    expect(rest).toContain('--strict')
    expect(rest.join('\n')).not.toMatch(/nvapi|CAISSON_HOME/)
  })

  it('allows with silence, denies with exit code 2, and else says its decision as JSON [A.10]', async () => {
    expect(await ask('exit 0')).toMatchObject({ ok: true, value: { decision: 'allow' } })
    expect(await ask('echo not today >&2; exit 2')).toEqual({
      ok: true,
      value: { decision: 'deny', reason: 'not today' },
    })
    expect(await ask('exit 2')).toEqual({ ok: true, value: { decision: 'deny' } })
    const said = { decision: 'ask', reason: 'r', arguments: { command: 'ls -a' }, note: 'n' }
    expect(await ask(`echo '${JSON.stringify(said)}'`)).toEqual({ ok: true, value: said })
  })

  it('that says anything else has failed, and the reason is reported [A.10]', async () => {
    for (const [script, why] of [
      ['exit 1', /exit code 1/],
      ['echo oops >&2; exit 7', /exit code 7; it said: oops/],
      ['echo yes', /not JSON/],
      [`echo '{"decision":"maybe"}'`, /decision/],
      [`echo '{"verdict":"deny"}'`, /verdict/],
      [`echo '["deny"]'`, /decision/],
      ['head -c 400000 /dev/zero', /printed more than/],
      ['kill -9 $$', /signal/],
    ] as const) {
      const answer = await ask(script)
      expect(answer, script).toMatchObject({ ok: false, error: expect.stringMatching(why) })
    }
    const misplaced = await ask(`echo '{"arguments":{}}'`, { point: 'before-run' })
    // The point of the hook is that of what it gets.
    expect(misplaced.ok).toBe(true)
    const atRun = commandHook(
      { point: 'before-run', command: [program(`echo '{"decision":"ask"}'`)] },
      process.env,
    )
    const about = { prompt: 'p', directory: '/d', mode: 'work', model: 'm', provider: 'p' } as const
    expect(await atRun.ask({ version: 1, point: 'before-run', runId, ...about }, never)).toMatchObject({
      ok: false,
      error: expect.stringContaining('before-run does not take'),
    })
  })

  it('that the system does not start has failed, and so counts as what it was configured to [A.10]', async () => {
    const env = { ...process.env, LANG: 'x'.repeat(300_000) }
    const hook = commandHook({ point: 'after-run', command: [program('exit 0')], onFailure: 'deny' }, env)
    const journal: HostEvent[] = []
    const run = new RunHooks({
      runId,
      hooks: [hook],
      note: async (event) => void journal.push(event),
      ask: () => Promise.reject(new Error('nobody is asked')),
    })
    const about = { prompt: 'p', directory: '/d', outcome: 'completed', reason: 'completed' } as const
    const { decision, reason } = await run.ask('after-run', {
      ...about,
      message: '',
      summary: '',
      changes: null,
    })
    expect([decision, reason]).toEqual(['deny', expect.stringContaining('could not be asked')])
    expect(journal).toMatchObject([{ type: 'hook-end', failed: true, decision: 'deny' }])
  })

  it('ends with its time, or with the run, and everything that it started ends with it [A.10]', async () => {
    const mark = `hook-sleep-${process.pid}`
    const left = (): string =>
      execFileSync('/bin/sh', ['-c', `ps -eo args | grep -c "[s]leep 98${process.pid}" || true`])
        .toString()
        .trim()
    const spawnMany = `sleep 98${process.pid} & sleep 98${process.pid} & echo ${mark} >/dev/null`
    const late = await ask(`${spawnMany}; sleep 98${process.pid}`, { timeoutMs: 300 })
    expect(late).toMatchObject({ ok: false, error: expect.stringContaining('0.3 s') })
    await expect.poll(left).toBe('0')
    // Also what a command leaves behind that ends well.
    expect(await ask(`${spawnMany}; exit 0`)).toMatchObject({ ok: true })
    await expect.poll(left).toBe('0')
    const run = new AbortController()
    const asked = ask(`sleep 98${process.pid}`, {}, process.env, run.signal)
    await sleep(100)
    run.abort()
    expect(await asked).toMatchObject({ ok: false })
    await expect.poll(left).toBe('0')
  })

  it('ends with its time also where it went into a session of its own [A.10]', async () => {
    const mark = `97${process.pid}`
    const left = async (): Promise<number> => (await findProcessesByArgument(mark)).length
    // The second one has no parent any more that could tell whose it is.
    const leaving = `setsid sleep ${mark} & (setsid sleep ${mark} &); sleep ${mark}`
    expect(await ask(leaving, { timeoutMs: 400 })).toMatchObject({ ok: false })
    await expect.poll(left).toBe(0)
  })

  it('ends with the host process, however that ends [A.10]', async () => {
    const mark = `96${process.pid}`
    const file = program(`sleep ${mark} & sleep ${mark}`)
    const module = fileURLToPath(new URL('../../hooks/run-command.ts', import.meta.url))
    const options = `{ input: '', variables: {}, timeoutMs: 60_000, signal: new AbortController().signal, env: process.env }`
    const script = `import { runCommand } from ${JSON.stringify(module)}
      await runCommand(${JSON.stringify(file)}, [], ${options})`
    const node = ['--conditions=caisson-source', '--input-type=module', '-e', script]
    const host = spawn(process.execPath, node, { stdio: 'ignore' })
    const count = async (): Promise<number> => (await findProcessesByArgument(mark)).length
    await expect.poll(count, { timeout: 20_000 }).toBe(2)
    host.kill('SIGKILL')
    await expect.poll(count, { timeout: 20_000 }).toBe(0)
  })

  it('comes from no workspace, no folder of others and no relative place [A.10 V.10]', async () => {
    const where = folder()
    const out = path.join(where, 'ran')
    const file = program(`touch ${out}`, where)
    closeToPrograms(where)
    const isRefused = async (command: string, env = process.env): Promise<void> => {
      const answer = await commandHook({ point: 'before-tool', command: [command] }, env).ask(input, never)
      expect(answer).toMatchObject({
        ok: false,
        error: expect.stringMatching(/does not exist or is not executable|relative path/),
      })
    }
    await isRefused(file)
    await isRefused('guard', { ...process.env, PATH: `${where}:/usr/bin` })
    await isRefused('./guard')
    await isRefused('/tmp/guard-that-is-not-there')
    expect(existsSync(out)).toBe(false)
  })
})
