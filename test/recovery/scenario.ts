/**
 * A run with every kind of effect: files and commands in the VM, a tool of the host, called by the model and by a
 * program, a request of a program that leaves the VM, two sub-agents, a question, a message of the person, and steps
 * side by side. Each effect outside leaves a line in a ledger that no victim holds.
 */
import { appendFileSync } from 'node:fs'
import * as z from 'zod'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'
import type { Host, ResumeOptions, RunOptions } from '../../host/host.ts'
import type { Run } from '../../host/runs/run.ts'

export interface Scene {
  readonly workspace: string
  /** File with a line for each order and each question. */
  readonly ledger: string
  /** Port of the server that programs in the VM reach. */
  readonly outsidePort: number
  /** Milliseconds until a run that waits goes to sleep; its questions are answered then. Absent: at once, awake. */
  readonly sleepAfterMs?: number
  /** Time limit of the run, and of its waits for disk space. */
  readonly maxWallMs?: number
  /** Whether the run is the workflow of `workflow-scenario.ts`. */
  readonly isWorkflow?: boolean
  /** Whether a run that sleeps leaves its process. */
  readonly leaveOnSleep?: boolean
}

const step = (id: string, fields: object = {}) => ({
  id,
  title: id,
  instructions: `do ${id}`,
  writes: [`${id}.txt`],
  ...fields,
})
const agent = { kind: 'agent', needs: ['left', 'right'] }
const plan = {
  goal: 'Order the parts and log them',
  steps: [
    step('left'),
    step('right'),
    step('first', agent),
    step('second', agent),
    step('last', { needs: ['first', 'second'] }),
  ],
}

/** What the files of an undisturbed run have at its end. */
export const expectedFiles: Readonly<Record<string, string>> = {
  'given.txt': 'given\n',
  'left.txt': 'one\ntwo\n',
  'right.txt': 'blue\n',
  'first.txt': 'one\ntwo\n',
  'second.txt': 'second\n',
  'last.txt': 'reached outside\n1 teal\n',
}
export const expectedOrders = ['a7', 'b8']
export const givenFiles: Readonly<Record<string, string>> = { 'given.txt': 'given\n' }

/** What the person says once the first steps are done. */
const message = 'Paint it teal.'

const bash = (command: string) => ({ name: 'run_bash', arguments: { command } })
const order = (id: string) => ({ name: 'order_part', arguments: { id } })

const javascript = (code: string) => ({ name: 'run_javascript', arguments: { code } })

/** A program that writes before and behind its call of the host's tool, whose result may be unknown. */
const orderBetweenLines = (id: string, heard: string) =>
  [
    "import { appendFile } from 'node:fs/promises'",
    `await appendFile('last.txt', '${heard} ')`,
    `console.log(await tools.order_part({ id: '${id}' }).catch(({ message }) => message))`,
    "await appendFile('last.txt', 'teal\\n')",
  ].join('\n')

/** Through the proxy of the guest, by the shell alone. */
const reachOutside = (port: number) =>
  [
    `address=\${http_proxy#http://}; address=\${address%/}`,
    `exec 3<>/dev/tcp/\${address%:*}/\${address#*:}`,
    `printf 'GET http://127.0.0.1:${port}/ HTTP/1.1\\r\\nhost: 127.0.0.1:${port}\\r\\nconnection: close\\r\\n\\r\\n' >&3`,
    "grep -o 'reached outside' <&3 > last.txt",
  ].join('; ')

/**
 * Calls of each step, a turn each.
 * @param heard how often the step has the person's message
 */
function turnsOf(id: string, { outsidePort }: Scene, heard: number): { name: string; arguments: object }[] {
  const turns: Readonly<Record<string, { name: string; arguments: object }[]>> = {
    left: [
      { name: 'write_file', arguments: { path: 'left.txt', content: 'one\n' } },
      order('a7'),
      bash('echo two >> left.txt'),
    ],
    right: [
      { name: 'ask_user', arguments: { kind: 'text', question: 'Which color?' } },
      bash('echo blue >> right.txt'),
    ],
    first: [bash('echo one >> first.txt'), bash('echo two >> first.txt')],
    second: [{ name: 'write_file', arguments: { path: 'second.txt', content: 'second\n' } }],
    last: [bash(reachOutside(outsidePort)), javascript(orderBetweenLines('b8', `${heard}`))],
  }
  return turns[id] ?? []
}

/**
 * The model of the run: what a step asks next follows from how often it was answered. It gives calls of different steps
 * the same ids, as servers of models do.
 */
export function answer({ messages }: Asked, scene: Scene): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const id = /\bdo (left|right|first|second|last)\b/.exec(asked)?.[1] ?? ''
  const done = messages.filter(({ role }) => role === 'assistant').length
  const next = turnsOf(id, scene, asked.split(message).length - 1)[done]
  return next === undefined
    ? reply({ text: `did ${id}` })
    : reply({ calls: [{ ...next, id: `call-${done}`, arguments: JSON.stringify(next.arguments) }] })
}

function extensionsOf(
  { ledger }: Scene,
  onOrder: (id: string) => void,
): NonNullable<RunOptions['extensions']> {
  return {
    hostTools: {
      order_part: {
        description: 'Orders a part.',
        inputSchema: z.strictObject({ id: z.string() }),
        readOnly: false,
        execute: ({ id }: { id: string }) => {
          appendFileSync(ledger, `ordered ${id}\n`)
          onOrder(id)
          return `ordered ${id}`
        },
      },
    },
  }
}

/** @param context further sections. Absent: none */
export async function startRun(
  host: Host,
  scene: Scene,
  context?: NonNullable<ResumeOptions['context']>,
): Promise<Run> {
  return await host.run(optionsOf(scene, context))
}

/** What the run of the scenario is started with. */
export function optionsOf(scene: Scene, context?: NonNullable<ResumeOptions['context']>): RunOptions {
  const { outsidePort, sleepAfterMs, maxWallMs, leaveOnSleep = false } = scene
  const sleeps = sleepAfterMs === undefined ? {} : { sleepAfterMs }
  return {
    prompt: plan.goal,
    workspace: scene.workspace,
    plan: { from: plan as never },
    approvals: { rules: [{ effect: 'allow', tool: 'order_part' }], interactive: true },
    egress: { rules: [{ effect: 'allow', host: '127.0.0.1', schemes: ['http'], ports: [outsidePort] }] },
    vm: { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold', ...sleeps },
    ...(maxWallMs === undefined ? {} : { limits: { maxWallMs } }),
    extensions: extensionsOf(scene, () => undefined),
    onNotes: () => undefined,
    leaveOnSleep,
    ...(context === undefined ? {} : { context }),
  }
}

export async function resumeRun(
  host: Host,
  runId: string,
  scene: Scene,
  context?: NonNullable<ResumeOptions['context']>,
): Promise<Run> {
  const options: ResumeOptions = {
    ...(context === undefined ? {} : { context }),
    interactive: true,
    extensions: extensionsOf(scene, () => undefined),
    onNotes: () => undefined,
  }
  return await host.resume(runId, options)
}

/**
 * Answers each question, at once or when the run sleeps, and says one thing to the agent unless the journal has it, until
 * the run's end.
 */
export async function accompany(host: Host, run: Run, { ledger, sleepAfterMs }: Scene): Promise<void> {
  let speaks = (await host.runs.read(run.id)).every(({ event }) => event.type !== 'steer-request')
  for await (const item of run.watch()) {
    if (item.source === 'delta') continue
    if (speaks && item.event.type === 'step-start' && item.event.stepId === 'first') {
      speaks = false
      // Refused by a run that has just ended, which the verdict sees.
      void run.steer(message).catch(() => undefined)
    }
    const asked = item.event.type === 'approval-request' ? [item.event.request.approvalId] : []
    const slept = item.event.type === 'run-sleep' ? Object.keys(run.state.pendingApprovals) : []
    for (const approvalId of sleepAfterMs === undefined ? asked : slept) {
      if (!run.hasPendingApproval(approvalId)) continue
      appendFileSync(ledger, 'asked\n')
      await run.answer(approvalId, { decision: 'allow', scope: 'once', answer: 'blue' })
    }
  }
}
