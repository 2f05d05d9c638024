/** A model server that sends what no server should, through a whole run, and what a person and the journal then show. */
import { existsSync } from 'node:fs'
import { PassThrough } from 'node:stream'
import { expect } from 'vitest'
import { delta, done, event } from '#specs/testing/model-replies.ts'
import { type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { runsShow } from '../../cli/commands/runs.ts'
import { ProgressView } from '../../cli/render/progress.ts'
import { findVms, testBench } from './runs.ts'
import { controls } from './twist.ts'

const key = 'sk-secret-of-the-test'
/** Clears a screen, names a window, colors, returns, reverses and hides, in a terminal that is given it as it is. */
export const escapes = '\u001b[2J\u001b]0;owned\u0007\u009b31m\r\u202e\u200b'

/** Bytes that are no text, the same in each round. */
export function noise(count: number): Buffer {
  let state = 20_261_124
  return Buffer.from(
    Array.from({ length: count }, () => {
      state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
      return state >> 16
    }),
  )
}

/** An answer that is one call. */
export function call(name: unknown, args: unknown, index: number = 0): ServerReply {
  const entry = { index, id: 'c1', type: 'function', function: { name, arguments: args } }
  return { body: `${delta({ tool_calls: [entry] })}${delta({}, 'tool_calls')}${done}` }
}

/** An answer in words with this usage. */
export function counted(usage: object): ServerReply {
  const counts = { id: 'x', created: 1, model: `m${escapes}`, choices: [], usage }
  return { body: `${delta({ content: 'I am done.' })}${delta({}, 'stop')}${event(counts)}${done}` }
}

/** Runs a task with the server. Checks that the run has ended, that nothing leaked or is left, and what a screen gets. */
export async function meet(script: Script | readonly ServerReply[], maxWallMs = 200_000) {
  await using server = await startModelServer(script)
  const env = { CAISSON_LLM_URL: server.baseUrl, CAISSON_LLM_KEY: key, CAISSON_MODEL: 'scripted' }
  const bench = await testBench({ 'a.txt': 'a\n' }, env)
  const limits = { maxWallMs, maxTokens: 200_000 }
  const { run, state, items } = await bench.run('Look at a.txt', { limits })
  const [live, later] = [screen(), screen()]
  const view = new ProgressView(live.out, { verbose: true })
  for (const item of items) view.show(item)
  view.end(state)
  const io = { stdin: process.stdin, stderr: later.out, env: { CAISSON_HOME: bench.home }, version: '0' }
  await runsShow({ ...io, stdout: later.out }, run.id, { verbose: true })
  for (const shown of [live.text(), later.text()]) {
    expect(shown).not.toMatch(controls)
    expect(shown).not.toContain(key)
  }
  expect(await findVms(bench.home)).toEqual([])
  expect(existsSync(bench.host.runs.paths(run.id).control)).toBe(false)
  const { problem } = await bench.host.runs.summary(run.id)
  expect(problem).toBeUndefined()
  return { end: state.end, usage: state.usage, asked: server.asked, shown: live.text() }
}

function screen() {
  const out = Object.assign(new PassThrough(), { columns: 100, rows: 30 })
  const parts: Buffer[] = []
  out.on('data', (part: Buffer) => parts.push(part))
  return { out, text: () => Buffer.concat(parts).toString() }
}
