// A run that waits for a person longer than its VM is worth: only journal and disk remain, and an answer continues it.
import { existsSync } from 'node:fs'
import { mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { configFile } from '../../config/load.ts'
import { Host } from '../../host.ts'
import type { Run } from '../../runs/run.ts'
import { findVms, finish, readFiles, testBench } from '../support/runs.ts'

const calls = [
  ['run_bash', { command: 'echo one >> log.txt' }],
  ['ask_user', { kind: 'text', question: 'Which color?' }],
  ['run_bash', { command: 'cat log.txt; echo two >> log.txt; sleep 1.1' }],
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['ask_user', { kind: 'text', question: 'Which size?' }],
] as const

const waiting = { timeout: 120_000, interval: 100 }

async function bytesOf(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const sizes = entries
    .filter((entry) => entry.isFile())
    .map(async (entry) => (await stat(path.join(entry.parentPath, entry.name))).blocks * 512)
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

it('sleeps as journal and disk, here or without a process, and an answer continues it; nothing is asked twice [R.12 V.04]', async () => {
  await using model = await startModelServer(({ messages }) => {
    const done = messages.filter(({ role }) => role === 'tool').length
    const [name, args] = calls[done] ?? []
    if (name === undefined) return reply({ text: 'All is done.' })
    return reply({ calls: [{ id: `call-${done}`, name, arguments: JSON.stringify(args) }] })
  })
  const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' }
  const { host, home, start, workspace } = await testBench({ 'log.txt': '' }, env)
  const vm = { hibernateAfterMs: 200 }
  await mkdir(host.folders.config, { recursive: true, mode: 0o700 })
  await writeFile(configFile(host.folders), '[vm]\nsleepAfterMs = 1_500\n', { mode: 0o600 })
  const first = await start('do it', { vm, approvals: { interactive: true }, leaveOnSleep: true })
  const { id } = first

  // Without a process: the run leaves it, and what remains is small.
  expect((await first.ended).end).toBeNull()
  const { status, since, isLive, pendingApprovals } = await host.runs.summary(id)
  expect({ status, isLive, pendingApprovals }).toEqual({
    status: 'sleeping',
    isLive: false,
    pendingApprovals: 1,
  })
  expect(Date.now() - (since ?? 0)).toBeLessThan(60_000)
  const { hibernated, directory } = host.runs.paths(id)
  expect([existsSync(hibernated), await findVms(home)]).toEqual([false, []])
  expect(await bytesOf(directory)).toBeLessThan(8 * 1024 ** 2)
  const [asked] = await host.runs.pendingApprovals(id)
  const color = asked?.approval.approvalId ?? ''
  const red = { decision: 'allow', scope: 'once', answer: 'red' } as const
  expect(await host.answer(id, color, { ...red, answer: 7 })).toMatchObject({ reason: 'not_offered' })
  expect(await host.answer(id, color, red, { by: 'ada' })).toEqual({ taken: true })
  expect(await host.answer(id, color, red)).toMatchObject({ reason: 'decided', message: /ada/ })

  // In a process: it stays, and continues by itself.
  const second: Run = await host.resume(id, { interactive: true })
  const finished = finish(second)
  const sleeps = async () =>
    (await host.runs.read(id)).filter(({ event }) => event.type === 'run-sleep').length
  await expect.poll(sleeps, waiting).toBe(2)
  expect((await host.runs.summary(id)).status).toBe('sleeping')
  await expect.poll(() => findVms(home), waiting).toEqual([])
  const [size] = second.state === undefined ? [] : Object.keys(second.state.pendingApprovals)
  expect(await second.answer(size ?? '', { ...red, answer: 'large' })).toEqual({ taken: true })
  const { state, events: seen } = await finished
  expect(seen).toContainEqual(expect.objectContaining({ type: 'run-sleep' }))
  expect(state.end).toMatchObject({ outcome: 'completed' })

  const events = (await host.runs.read(id)).map(({ event }) => event)
  const count = (type: string) => events.filter((event) => event.type === type).length
  expect([count('run-sleep'), count('run-resume'), count('approval-request'), count('run-end')]).toEqual([
    2, 2, 2, 1,
  ])
  const told = model.asked
    .at(-1)
    ?.messages.map(({ content }) => JSON.stringify(content))
    .join()
  expect(told).toContain('red')
  expect(told).toContain('large')
  await (await host.changes(id)).apply('all')
  expect(await readFiles(workspace)).toEqual({ 'log.txt': 'one\ntwo\n', 'new.txt': 'new\n' })
  // Asked once for each turn: what was answered before the sleep is not paid again.
  expect(model.asked).toHaveLength(calls.length + 1)
}, 240_000)

it('in a VM of a pool sleeps too, from checkpoints of its own, and leaves nothing in the pool [R.12 V.01 V.06]', async () => {
  await using model = await startModelServer(({ messages }) => {
    const done = messages.filter(({ role }) => role === 'tool').length
    const [name, args] = calls.slice(0, 3)[done] ?? []
    if (name === undefined) return reply({ text: 'All is done.' })
    return reply({ calls: [{ id: `call-${done}`, name, arguments: JSON.stringify(args) }] })
  })
  const { home, workspace } = await testBench({ 'log.txt': '' })
  const env = {
    ...process.env,
    CAISSON_HOME: home,
    CAISSON_LLM_URL: model.baseUrl,
    CAISSON_MODEL: 'scripted',
  }
  const vm = { memoryBytes: 512 * 1024 ** 2 }
  await using host = new Host({ env, pool: { size: 1, vm } })
  const run = await host.run({
    ...{ prompt: 'do it', workspace, approvals: { interactive: true } },
    vm: { ...vm, hibernateAfterMs: 300, sleepAfterMs: 2_500 },
  })
  const finished = finish(run)
  const typesOf = async () => (await host.runs.read(run.id)).map(({ event }) => event.type)
  await expect.poll(typesOf, waiting).toContain('run-sleep')
  const [color = ''] = Object.keys(run.state.pendingApprovals)
  expect(await run.answer(color, { decision: 'allow', scope: 'once', answer: 'red' })).toEqual({
    taken: true,
  })
  const { state, events } = await finished
  expect(state.end).toMatchObject({ outcome: 'completed' })
  const [first] = events.flatMap((event) => (event.type === 'vm-ready' ? [event] : []))
  expect(first?.phasesMs.pool).toBeDefined()
  const types = events.map(({ type }) => type)
  expect(types.indexOf('checkpoint')).toBeLessThan(types.indexOf('run-sleep'))
  expect(events).toContainEqual(
    expect.objectContaining({ type: 'run-resume', checkpointId: expect.any(String) }),
  )
  expect(model.asked).toHaveLength(4)
  await (await host.changes(run.id)).apply('all')
  expect(await readFiles(workspace)).toEqual({ 'log.txt': 'one\ntwo\n' })
  await host.close()
  expect(await findVms(home)).toEqual([])
}, 240_000)

it('of two open questions the first answer wakes the run, and the other one waits on under its id [R.12]', async () => {
  const step = (id: string) => ({ id, title: id, instructions: `do ${id}`, needs: [], writes: [`${id}.txt`] })
  const begun = new Set<string>()
  const both = Promise.withResolvers<void>()
  await using model = await startModelServer(async ({ messages, text }) => {
    const id = text.includes('do left') ? 'left' : 'right'
    if (messages.some(({ role }) => role === 'tool')) return reply({ text: `${id} is done` })
    if (begun.add(id).size === 2) both.resolve()
    await both.promise
    const question = JSON.stringify({ kind: 'text', question: `Which ${id}?` })
    return reply({ calls: [{ id: `call-${id}`, name: 'ask_user', arguments: question }] })
  })
  const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' }
  const { host, start } = await testBench({}, env)
  const run = await start('ask', {
    plan: { from: { goal: 'ask', steps: [step('left'), step('right')] } },
    vm: { sleepAfterMs: 1_500 },
    approvals: { interactive: true },
  })
  const finished = finish(run)
  const typesOf = async () => (await host.runs.read(run.id)).map(({ event }) => event.type)
  await expect.poll(typesOf, waiting).toContain('run-sleep')
  const [first = '', second = ''] = Object.keys(run.state.pendingApprovals)
  const answer = { decision: 'allow', scope: 'once', answer: 'this' } as const
  expect(await run.answer(first, answer)).toEqual({ taken: true })
  // Before the next agent has asked again.
  await expect.poll(typesOf, waiting).toContain('run-resume')
  expect(run.hasPendingApproval(second)).toBe(true)
  expect(await run.answer(second, answer)).toEqual({ taken: true })
  const { state, events } = await finished
  expect(state.end).toMatchObject({ outcome: 'completed' })
  const decisions = events.filter(({ type }) => type === 'approval-decision')
  expect(decisions).toMatchObject([first, second].map((approvalId) => ({ approvalId, by: 'person' })))
}, 240_000)
