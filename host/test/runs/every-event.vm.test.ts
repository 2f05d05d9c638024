// Every event and delta of docs/events.md, as a watcher of runs in real VMs gets them. Two need a full disk:
// full-disk.slow.test.ts shows them. One needs a long wait: run-sleep.vm.test.ts shows it.
import { readdir } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import * as z from 'zod'
import { agentExamples, deltaExamples, hostExamples } from '#specs/node/event-examples.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import type { RunClient } from '../../control/run-client.ts'
import { Host } from '../../host.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import type { Run } from '../../runs/run.ts'
import { textOf } from '../control/support.ts'
import { cliPlace, runArguments } from '../support/cli.ts'
import { finish, testBench } from '../support/runs.ts'
import { findQemu } from '../support/vm-processes.ts'

const onFullDisk = ['disk-wait', 'disk-full']
const inLongWait = ['run-sleep', 'run-interrupt']
/** Shown by the test of the queue of a service. */
const inQueue = ['queue-start', 'queue-end']
/** Shown by the tests of a fleet. */
const inFleet = ['run-take']
/** Shown by the tests of sub-agents in a VM. */
const atSubAgents = ['agent-cancel-request']
const inLoss = ['session-end', 'run-resume', 'vm-end', 'vm-keep-failed', 'cancel-request', 'run-interrupted']
const inWork = [
  ...Object.keys(hostExamples),
  ...Object.keys(agentExamples),
  ...Object.keys(deltaExamples),
].filter(
  (type) => ![...onFullDisk, ...inLongWait, ...inQueue, ...inFleet, ...atSubAgents, ...inLoss].includes(type),
)

const call = (name: string, input: unknown): { name: string; arguments: unknown } => ({
  name,
  arguments: input,
})
const step = (id: string, instructions: string, more: object = {}): object => ({
  id,
  title: id,
  instructions,
  ...more,
})

/** Types of what a watcher sees, in the order of their first appearance. */
function typesOf(items: readonly FeedItem[]): Set<string> {
  return new Set(items.map((item) => (item.source === 'delta' ? item.delta.type : item.event.type)))
}

/** Resolves when the run shows an event or delta that satisfies `is`. */
async function sees(run: Run, is: (item: FeedItem) => boolean): Promise<void> {
  for await (const item of run.watch()) if (is(item)) return
  throw new Error('the run ended without it')
}

const isEvent =
  (type: string) =>
  (item: FeedItem): boolean =>
    item.source !== 'delta' && item.event.type === type

/** Everything that it shows until its end. */
async function itemsOf(client: RunClient | null): Promise<FeedItem[]> {
  const items: FeedItem[] = []
  for await (const item of client?.watch() ?? []) items.push(item)
  return items
}

async function inVm(host: Host, run: Run, command: string): Promise<void> {
  const shell = await (await host.vms.find(run.id)).openShell({ argv: ['sh', '-c', command], terminal: null })
  shell.stdin.end()
  await Promise.all([textOf(shell.stdout), textOf(shell.stderr), shell.ended])
}

/** A server on this machine's loopback. */
async function serve(): Promise<number> {
  const server = createServer((_request, response) => response.end('rates'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

/** The replies of each step, known by the word in capitals with which its instructions begin. */
function byStep(plan: ServerReply, replies: Readonly<Record<string, readonly ServerReply[]>>) {
  const turns = new Map<string, number>()
  return ({ messages, tools }: Asked): ServerReply => {
    if (tools.length === 0) return reply({ text: 'A summary of what was done so far.' })
    const user = messages.find(({ role }) => role === 'user')?.content ?? ''
    const word = /<instructions>\n(?:.*\n\n)?([A-Z]{2,})/.exec(user)?.[1]
    if (word === undefined) return plan
    const turn = turns.get(word) ?? 0
    turns.set(word, turn + 1)
    return replies[word]?.[turn] ?? reply({ text: `${word} is done` })
  }
}

describe('every event of the document', () => {
  it('of work is seen by a watcher: model, tools, person, network, sub-agents, sleep, apply, undo [S1.10 H.01]', async () => {
    const port = await serve()
    const plan = reply({
      calls: [
        call('submit_plan', {
          goal: 'See everything',
          steps: [
            step('work', 'WORK', { writes: ['*'] }),
            step('help', 'HELP', { kind: 'agent', needs: ['work'], retries: 1, limits: { maxTurns: 1 } }),
            step('long', 'LONG', { needs: ['help'] }),
          ],
        }),
      ],
    })
    const broken = reply({ text: ['This answer ', 'breaks off.'] })
    const script = byStep(plan, {
      WORK: [
        { ...broken, body: (broken.body as string).slice(0, -120), after: 'reset' },
        reply({
          reasoning: 'A command.',
          calls: [
            call('run_bash', { command: 'echo one | tee one.txt; until [ -e /tmp/go ]; do sleep 0.1; done' }),
          ],
        }),
        reply({
          calls: [
            call('run_bash', {
              command: `curl -sS --noproxy '' http://127.0.0.1:${port}/; curl -sS -m 5 http://192.0.2.1/`,
            }),
          ],
        }),
        reply({
          calls: [
            call('look_up', { id: 'a7' }),
            call('remember', { text: 'The tests need Docker' }),
            call('governance_note', { action: 'add', proposalId: 'PROP-1', text: 'Seen.' }),
          ],
        }),
        reply({ calls: [call('delete_file', { path: 'old.txt' })] }),
      ],
      HELP: [reply({ calls: [call('run_bash', { command: 'true' })] })],
      LONG: Array.from({ length: 6 }, () =>
        reply({ calls: [call('run_bash', { command: 'head -c 24000 /dev/urandom | base64' })] }),
      ),
    })
    await using model = await startModelServer((asked, index) =>
      index === 0 ? { status: 429, headers: { 'retry-after': '1' }, body: 'busy' } : script(asked),
    )
    const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'test/model' }
    const bench = await testBench(
      { 'old.txt': 'old\n', '.agents/skills/broken/SKILL.md': 'no front matter' },
      env,
      {
        models: { 'test/model': { contextTokens: 24_000 } },
      },
    )
    const run = await bench.start('See everything', {
      approvals: { interactive: true },
      context: { prices: { text: 'tea 3' } },
      vm: { hibernateAfterMs: 300, keep: true },
      egress: { rules: [{ effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [port] }] },
      extensions: {
        hooks: [{ point: 'before-tool', name: 'marker', tools: ['look_up'], run: () => undefined }],
        hostTools: {
          look_up: {
            description: 'Looks an order up.',
            inputSchema: z.strictObject({ id: z.string() }),
            readOnly: true,
            execute: () => ({ price: 12 }),
          },
        },
      },
    })
    const finished = finish(run)
    await sees(run, (item) => item.source === 'delta' && item.delta.type === 'tool-output-delta')
    await sees(run, (item) => item.source === 'delta' && item.delta.type === 'vm-use')
    await run.steer('Use the formal form.')
    await run.pause()
    await inVm(bench.host, run, 'touch /tmp/go')
    await sees(run, isEvent('pause-start'))
    await run.resume()
    // Not the one while it was paused.
    let isAsked = false
    await sees(run, (item) => {
      isAsked ||= isEvent('approval-request')(item)
      return isAsked && isEvent('vm-sleep')(item)
    })
    const [asked] = Object.keys(run.state.pendingApprovals)
    await run.answer(asked ?? '', { decision: 'allow', scope: 'run' })
    await run.revokeAnswer(asked ?? '')
    const { state, items } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })

    const notes = await bench.host.runNotes(run.id)
    await notes.decide(new Map(notes.pending.map(({ note }) => [note.noteId, { keep: false }])), 'a test')
    const changes = await bench.host.changes(run.id)
    await changes.apply('all')
    await changes.undo()
    const later = await bench.host.runs.read(run.id)
    const afterwards = later.map(({ event }) => event.type)
    expect(inWork.filter((type) => ![...typesOf(items), ...afterwards].includes(type))).toEqual([])
  }, 300_000)

  it('of loss is seen by a watcher: a cancellation, a killed VM, a VM that cannot be kept, a killed host process [S1.10 V.01]', async () => {
    const bench = await testBench({})
    const wait = 'Run the command `echo begun; sleep 300`'
    const start = async (task: string, until: string, act: (run: Run) => Promise<unknown>) => {
      const run = await bench.start(task, { vm: { keep: true } })
      const finished = finish(run)
      await sees(run, isEvent(until))
      await act(run)
      return (await finished).items
    }
    const killQemu = async () => process.kill(await findQemu(bench.home), 'SIGKILL')
    const cancelled = await start(wait, 'tool-start', (run) => run.cancel())
    const killed = await start(wait, 'tool-start', async (run) => {
      await killQemu()
      await sees(run, isEvent('run-resume'))
      await run.cancel()
    })
    expect(killed).toContainEqual(
      expect.objectContaining({ event: expect.objectContaining({ type: 'vm-end', expected: false }) }),
    )
    const notKept = await start('Run the command `true`', 'changes-ready', killQemu)
    const place = await cliPlace({})
    const other = place.start(...runArguments(place, wait, '--json'))
    await other.sees('"tool-start"')
    const [runId] = await readdir(path.join(place.home, 'runs'))
    const client = await new Host({ env: place.env }).attach(runId ?? '')
    const watched = itemsOf(client)
    other.child.kill('SIGKILL')
    const seen = typesOf([...cancelled, ...killed, ...notKept, ...(await watched)])
    expect(inLoss.filter((type) => !seen.has(type))).toEqual([])
  }, 300_000)
})
