// Hooks and host tools in a real VM, end to end: commands of the configuration, functions and tools of the application, at depth.
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { describe, expect, it, onTestFinished } from 'vitest'
import * as z from 'zod'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { ownChanges } from '../../cli/commands/changes-of-run.ts'
import { reviewAndApply } from '../../cli/commands/review-changes.ts'
import { exitCodes } from '../../cli/exit-codes.ts'
import { finish, testBench } from '../support/runs.ts'

const call = (name: string, input: unknown): ServerReply => reply({ calls: [{ name, arguments: input }] })
const plan = call('submit_plan', {
  goal: 'Ship it',
  steps: [{ id: 'ship', title: 'Ship', instructions: 'ROOT', needs: [], writes: ['*'] }],
})

/** Root and sub-agent, known by the first word of their instructions, take their turns; what each gets last is kept. */
function byWord(scripts: Readonly<Record<string, readonly ServerReply[]>>, told: string[]): Script {
  const turns = new Map<string, number>()
  return (asked: Asked) => {
    const user = asked.messages.find(({ role }) => role === 'user')?.content ?? ''
    const word = /<instructions>\n(?:.*\n\n)?([A-Z]{2,})/.exec(user)?.[1]
    if (word === undefined) return plan
    const turn = turns.get(word) ?? 0
    turns.set(word, turn + 1)
    if (turn > 0) told.push(`${word}: ${asked.messages.at(-1)?.content}`)
    return scripts[word]?.[turn] ?? reply({ text: `${word} is done` })
  }
}

/** Below the home folder, where nobody else writes: hooks and a configuration may come from there. */
function privateFolder(): string {
  const folder = mkdtempSync(path.join(homedir(), '.caisson-hook-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

function program(script: string): string {
  const file = path.join(privateFolder(), 'guard')
  writeFileSync(file, `#!/bin/sh\n${script}\n`)
  chmodSync(file, 0o755)
  return file
}

describe('hooks and host tools in a VM', () => {
  it('deny, change arguments and run on the host for root and sub-agent alike, and hold the changes back [A.10, S2.11, S4.01]', async () => {
    const told: string[] = []
    await using server = await startModelServer(
      byWord(
        {
          ROOT: [
            call('run_bash', { command: 'echo root > root.txt' }),
            call('spawn_agent', { brief: 'PEN', name: 'pen' }),
          ],
          PEN: [
            call('delete_file', { path: 'keep.txt' }),
            call('run_bash', { command: 'echo pen > pen.txt' }),
            call('look_up', { id: 'a7' }),
          ],
        },
        told,
      ),
    )
    const bench = await testBench(
      { 'keep.txt': 'keep\n' },
      {
        CAISSON_LLM_URL: server.baseUrl,
        CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
        CAISSON_MODEL: 'scripted',
      },
    )
    const looked: unknown[] = []
    const run = await bench.start('Ship it', {
      extensions: {
        hooks: [
          {
            point: 'before-tool',
            name: 'marker',
            tools: ['run_bash'],
            run: ({ arguments: given }) => ({
              arguments: { ...given, command: `${String(given.command)}; echo hooked >> marks.txt` },
            }),
          },
          {
            point: 'after-run',
            name: 'gate',
            run: () => ({ decision: 'deny', reason: 'reviewed on Mondays' }),
          },
        ],
        hostTools: {
          look_up: {
            description: 'Looks an order up.',
            inputSchema: z.strictObject({ id: z.string() }),
            readOnly: true,
            execute: ({ id }: { id: string }, { agentPath }) => {
              looked.push([id, agentPath])
              return { order: id, price: 12 }
            },
          },
        },
      },
    })
    const { state, events } = await finish(run)
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(state.heldBack).toBe('reviewed on Mondays')
    expect(looked).toEqual([['a7', 'root/pen']])
    expect(told.join('\n')).toContain('{"order":"a7","price":12}')
    const changed = (await (await bench.host.changes(run.id)).review()).map((item) => item.path)
    expect(changed.toSorted()).toEqual(['marks.txt', 'pen.txt', 'root.txt'])
    expect(events.filter(({ type }) => type === 'hook-end')).toMatchObject([
      { hook: 'marker', agentPath: 'root' },
      { hook: 'marker', agentPath: 'root/pen' },
      { hook: 'gate', point: 'after-run', decision: 'deny' },
    ])
    const said: object[] = []
    const streams = { stdin: Readable.from([]), stdout: new PassThrough(), stderr: new PassThrough() }
    const io = { ...streams, env: {}, version: '0' }
    const emit = async (event: object): Promise<void> => void said.push(event)
    const code = await reviewAndApply(io, await ownChanges(bench.host, run.id), { choice: true, state, emit })
    expect([code, said]).toEqual([
      exitCodes.notAllApplied,
      [expect.objectContaining({ changes: 3, apply: null })],
    ])
  }, 300_000)

  it('are commands of the user’s configuration as well, and one before the run ends it before it has begun [A.10]', async () => {
    const told: string[] = []
    await using server = await startModelServer(
      byWord(
        {
          ROOT: [
            call('delete_file', { path: 'keep.txt' }),
            call('write_file', { path: 'new.txt', content: 'n' }),
          ],
        },
        told,
      ),
    )
    const guard = program(`case "$(cat)" in *delete_file*) echo "nothing is deleted here" >&2; exit 2;; esac`)
    const strict = program('echo "not on this machine" >&2; exit 2')
    const env = {
      CAISSON_LLM_URL: server.baseUrl,
      CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
      CAISSON_MODEL: 'scripted',
    }
    const hook = (point: string, command: string): string =>
      `[[hooks]]\npoint = "${point}"\ncommand = ["${command}"]\n`
    const config = privateFolder()
    mkdirSync(path.join(config, 'caisson'), { mode: 0o700 })
    const bench = await testBench({ 'keep.txt': 'keep\n' }, { ...env, XDG_CONFIG_HOME: config })
    writeFileSync(path.join(bench.host.folders.config, 'config.toml'), hook('before-tool', guard), {
      mode: 0o600,
    })
    const { state, run } = await bench.run('Tidy up')
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(told[0]).toContain('nothing is deleted here')
    expect((await (await bench.host.changes(run.id)).review()).map((item) => item.path)).toEqual(['new.txt'])
    writeFileSync(path.join(bench.host.folders.config, 'config.toml'), hook('before-run', strict), {
      mode: 0o600,
    })
    const refused = await bench.run('Tidy up')
    expect(refused.state.end).toMatchObject({
      outcome: 'failed',
      reason: 'denied',
      message: expect.stringContaining('not on this machine'),
    })
    expect(refused.events.map(({ type }) => type)).toEqual(['run-start', 'hook-end', 'run-end'])
  }, 300_000)
})
