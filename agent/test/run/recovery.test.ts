// A run whose agent is killed at each position of its events, and continued by another over the last checkpoint: the
// workspace and the log are copied at each checkpoint, as the disk of a VM is.
import { appendFileSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import * as z from 'zod'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { Completion } from '#specs/protocol/task.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { createAgents } from '../../subagents/create-agents.ts'
import { TaskServer } from '../../tasks.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, type Tool, toolSuccess } from '../../tool-calls/tool.ts'
import { createAskTool } from '../../tools/ask-user.ts'
import { createRevisePlanTool } from '../../tools/revise-plan.ts'
import { createAgentTools } from '../../tools/run-agents.ts'
import { folderViews } from '../support/agents.ts'
import { makeTask, modelAt, plainHost, silentLogger } from '../support/run.ts'
import { isOfSubAgent, stepOf } from '../support/scripted-model.ts'

const step = (id: string, fields: object = {}) => ({
  id,
  title: id,
  instructions: `do ${id}`,
  writes: [],
  ...fields,
})
const plan = {
  goal: 'g',
  steps: [
    step('left', { writes: ['left'] }),
    step('right', { writes: ['right'] }),
    step('helper', { kind: 'agent', writes: ['helper'], needs: ['left', 'right'] }),
    step('second', { kind: 'agent', writes: ['second'], needs: ['helper'] }),
    step('last', { needs: ['second'] }),
  ],
} as const
const call = (name: string, input: object): { name: string; arguments: string } => ({
  name,
  arguments: JSON.stringify(input),
})
const append = (file: string, line: string) => call('append_line', { path: file, line })

/** The calls of each step, one turn each. */
const turns: Readonly<Record<string, readonly { name: string; arguments: string }[][]>> = {
  left: [
    [append('left', 'one')],
    [call('order_part', { id: 'a7' })],
    [append('left', 'two'), append('left', 'three')],
  ],
  right: [[call('ask_user', { kind: 'text', question: 'Which color?' })], [append('right', 'one')]],
  helper: [[append('helper', 'one')], [append('helper', 'two')]],
  // Of another sub-agent, which has one of its own.
  second: [[append('second', 'one')], [call('spawn_agent', { brief: 'do deep', name: 'deep' })]],
  deep: [[append('second', 'two')]],
  last: [
    [
      call('revise_plan', {
        plan: { ...plan, steps: [...plan.steps, step('extra', { needs: ['last'] })] },
        reason: 'more to do',
      }),
    ],
    [append('last', 'one')],
  ],
  extra: [[append('extra', 'one'), call('order_part', { id: 'b8' })]],
}

function answer(asked: Asked): ServerReply {
  const brief = /<instructions>[\s\S]*?do (\w+)/.exec(asked.messages[1]?.content ?? '')?.[1] ?? ''
  const id = isOfSubAgent(asked) ? brief : (stepOf(asked) ?? '')
  const done = asked.messages.filter(({ role }) => role === 'assistant').length
  const calls = turns[id]?.[done]?.map((one, index) => ({ ...one, id: `${id}-${done}-${index}` }))
  return calls === undefined ? reply({ text: `did ${id}` }) : reply({ calls })
}

/** Never settles: who waits for the host of a dead agent. */
const forever = new Promise<never>(() => undefined)

interface Moment {
  readonly folder: string
  readonly events: number
}

/** What outlives an agent. */
class World {
  readonly events: { agentPath: string; event: AgentEvent }[] = []
  readonly orders = new Map<string, string>()
  questions = 0
  moment: Moment | undefined
  readonly #place: string
  readonly #baseUrl: string
  #lives = 0

  constructor(place: string, baseUrl: string) {
    this.#place = place
    this.#baseUrl = baseUrl
  }

  /** Has an agent work until the end, or until it has reported so many events. */
  async live(killAfter?: number): Promise<{ completion: Completion | null; files: Record<string, string> }> {
    const disk = path.join(this.#place, `disk-${++this.#lives}`)
    const root = path.join(disk, 'workspace')
    if (this.moment === undefined) mkdirSync(root, { recursive: true })
    else cpSync(this.moment.folder, disk, { recursive: true })
    this.events.length = this.moment?.events ?? 0
    const ended = Promise.withResolvers<Completion | null>()
    let isDead = false
    let reported = 0
    const log = { file: path.join(disk, 'agent', 'run.jsonl'), minIntervalMs: 0 }
    const tasks: TaskServer = new TaskServer({
      log,
      host: {
        ...plainHost,
        emitEvent: async (_, agentPath, event) => {
          if (isDead) return await forever
          this.events.push({ agentPath, event })
          reported += 1
          if (reported !== killAfter) return
          isDead = true
          ended.resolve(null)
          await forever
        },
        emitDelta: () => undefined,
        requestApproval: async () => {
          if (isDead) return await forever
          this.questions += 1
          return { ok: true, value: { decision: 'allow', answer: 'blue' } }
        },
        makeCheckpoint: async () => {
          if (isDead) return await forever
          const folder = path.join(this.#place, `moment-${this.#lives}-${reported}`)
          cpSync(disk, folder, { recursive: true })
          this.moment = { folder, events: this.events.length }
          return { ok: true, value: { made: true } }
        },
        complete: async (completion) => {
          if (isDead) return await forever
          ended.resolve(completion)
          return { ok: true, value: undefined }
        },
      },
      registry: createRegistry([...this.#toolsOver(root), createRevisePlanTool(), ...createAgentTools()], {
        logger: silentLogger,
      }),
      agentsFor: (run, reportFor) =>
        createAgents(run, {
          views: folderViews(root, disk),
          toolsFor: ({ path: view }) => this.#toolsOver(view),
          reportFor,
          root,
          owner: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
        }),
      modelFor: () => modelAt(this.#baseUrl),
      listWorkspace: () => Promise.resolve('(empty)'),
      logger: silentLogger,
    })
    const resume = this.moment === undefined ? {} : { resume: true as const }
    tasks.submit(makeTask({ plan: plan as never, ...resume }))
    const completion = await ended.promise
    if (completion !== null) await tasks.close()
    return { completion, files: filesOf(root) }
  }

  #toolsOver(root: string): Tool[] {
    const common = {
      outputSchema: z.object({ text: z.string() }),
      requiresApproval: false,
      readOnly: false,
    } as const
    return [
      createAskTool(),
      defineTool({
        ...common,
        name: 'append_line',
        description: 'Appends a line.',
        inputSchema: z.strictObject({ path: z.string(), line: z.string() }),
        execute: async ({ path: file, line }) => {
          appendFileSync(path.join(root, file), `${line}\n`)
          return toolSuccess({ text: 'done' })
        },
      }),
      // As the host does: one call under one id is carried out once.
      defineTool({
        ...common,
        name: 'order_part',
        description: 'Orders a part.',
        runs: 'host',
        isOwn: true,
        inputSchema: z.strictObject({ id: z.string() }),
        execute: async ({ id }, { callId = '' }) => {
          if (!this.orders.has(callId)) this.orders.set(callId, id)
          return toolSuccess({ text: `ordered ${id}` })
        },
      }),
    ]
  }
}

function filesOf(root: string): Record<string, string> {
  if (!existsSync(root)) return {}
  return Object.fromEntries(
    readdirSync(root).map((name) => [name, readFileSync(path.join(root, name), 'utf8')]),
  )
}

/** Without what differs from time to time. */
function outcomeOf(world: World, { completion, files }: Awaited<ReturnType<World['live']>>) {
  const state = world.events.reduce(reduceRun, initialRunState)
  const counts: Record<string, number> = {}
  for (const { agentPath, event } of world.events) {
    const about = 'stepId' in event ? event.stepId : ''
    const key = `${agentPath} ${event.type} ${about}`
    counts[key] = (counts[key] ?? 0) + 1
  }
  return {
    outcome: completion?.outcome,
    summary: completion?.summary,
    files,
    orders: [...world.orders.values()].toSorted(),
    steps: state.steps,
    revision: state.revision,
    agents: state.agents,
    counts: Object.fromEntries(Object.entries(counts).toSorted()),
  }
}

it('a run is the same wherever its agent was killed: files, effects, plan, steps, sub-agents, each event once [R.01 A.04]', async () => {
  await using model = await startModelServer(answer)
  const place = await temporaryFolder('recovery')
  const open = (name: string) => {
    mkdirSync(path.join(place, name))
    return new World(path.join(place, name), model.baseUrl)
  }
  const calm = open('calm')
  const undisturbed = outcomeOf(calm, await calm.live())
  expect(undisturbed).toMatchObject({
    outcome: 'completed',
    files: {
      left: 'one\ntwo\nthree\n',
      right: 'one\n',
      helper: 'one\ntwo\n',
      second: 'one\ntwo\n',
      last: 'one\n',
      extra: 'one\n',
    },
    orders: ['a7', 'b8'],
    revision: 2,
  })
  const total = calm.events.length
  for (let at = 1; at <= total; at += perTier(3, 1)) {
    const world = open(`killed-${at}`)
    expect((await world.live(at)).completion).toBeNull()
    // The second as well, as long as it has so much to report.
    const second = await world.live(1 + ((at * 7) % 11))
    const continued = second.completion === null ? await world.live() : second
    expect(outcomeOf(world, continued), `killed after event ${at} of ${total}`).toEqual(undisturbed)
  }
}, 300_000)
