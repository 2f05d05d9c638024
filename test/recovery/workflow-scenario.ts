/** A workflow with every kind of step: it asks, waits, calls functions with and without code, and two steps add steps to it. */
import { appendFileSync } from 'node:fs'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'
import type { Host, WorkflowOptions } from '../../host/host.ts'
import type { Run } from '../../host/runs/run.ts'
import { workflowTools } from '../../host/start-workflow.ts'
import { WorkspaceManager } from '../../host/workflows/workspace-manager.ts'
import type { Scene } from './scenario.ts'

const say = (content: string) => [{ role: 'user', content }]

/** @param waitS seconds of its wait */
export const stepsThatWait = (waitS: number) =>
  new WorkspaceManager().parse(
    JSON.stringify({
      'A@1#details': {
        steps: ['plan', 'ask', 'each', 'wait', 'more', 'say'].map((id) => ({ id })),
        result:
          '{"added": (steps.plan.added + steps.more.added).map(one, one.output), "each": steps.each.output, "said": steps.say.output}',
      },
      'A@1@step-plan#details': { chat: say('Plan it.'), mayAdd: { steps: 2, functions: 1 } },
      'A@1@step-ask#details': { ask: { question: 'Which factor?', options: ['2', '3'] } },
      'A@1@step-each#details': {
        each: { in: '[1, 2]', parallel: 2 },
        chat: say('Order {{item}} times {{steps.ask.output}}'),
        function: ['order_part'],
      },
      'A@1@step-wait#details': { wait: { for: waitS } },
      'A@1@step-more#details': { chat: say('Is there more?'), mayAdd: { steps: 1 } },
      'A@1@step-say#details': {
        call: { function: 'times', arguments: { n: '{{size(steps.each.output)}}' } },
      },
      'A@1@func-order_part#details': { description: 'orders', parameters: [{ type: 'string', name: 'id' }] },
      'A@1@func-times#details': {
        description: 'multiplies',
        parameters: [{ type: 'integer', name: 'n' }],
        code: 'function times(n: number) { return { n: n * 10 } }',
      },
    }),
  )

export const added = {
  reason: 'There is more to do',
  steps: [
    { id: 'first', chat: say('First of {{steps.plan.output}}') },
    { id: 'second', call: { function: 'length', arguments: { text: '{{steps.first.output}}' } } },
  ],
  functions: [
    {
      name: 'length',
      description: 'counts',
      parameters: [{ type: 'string', name: 'text' }],
      language: 'python',
      code: 'def length(text): return {"length": len(text)}',
    },
  ],
}

const addedLater = { reason: 'One more', steps: [{ id: 'last', chat: say('Added later') }] }

/** @param orders receives what its function outside the VM is called with */
export const workflowOptions = (
  { workspace, ledger }: Scene,
  orders: string[] = [],
): WorkflowOptions & { readonly functions: NonNullable<WorkflowOptions['functions']> } => ({
  functions: {
    order_part: ({ id }) => {
      orders.push(String(id))
      appendFileSync(ledger, `ordered ${id}\n`)
    },
  },
  workspace,
  approvals: { rules: [{ effect: 'allow', tool: 'order_part' }] },
  onApproval: ({ question }) =>
    question === undefined ? { decision: 'deny' } : { decision: 'allow', answer: '3' },
  vm: { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold' },
  onNotes: () => undefined,
})

export async function startWorkflowRun(host: Host, scene: Scene, orders: string[] = []): Promise<Run> {
  return await host.startWorkflow(stepsThatWait(1), workflowOptions(scene, orders))
}

export async function resumeWorkflowRun(host: Host, runId: string, scene: Scene): Promise<Run> {
  const { functions, onApproval, onNotes } = workflowOptions(scene)
  const hostTools = workflowTools(stepsThatWait(1), functions)
  return await host.resume(runId, {
    extensions: { hostTools },
    ...(onApproval === undefined ? {} : { onApproval }),
    ...(onNotes === undefined ? {} : { onNotes }),
  })
}

export function answerWorkflow({ messages }: Asked): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const isFirst = messages.at(-1)?.role !== 'tool'
  const call = (name: string, args: object) =>
    reply({ calls: [{ id: 'c1', name, arguments: JSON.stringify(args) }] })
  if (asked.includes('Plan it.')) return isFirst ? call('add_steps', added) : reply({ text: 'plan' })
  if (asked.includes('Is there more?')) return isFirst ? call('add_steps', addedLater) : reply({ text: 'no' })
  if (asked.includes('Added later')) return reply({ text: 'last' })
  if (asked.includes('First of')) return reply({ text: 'four' })
  const [, item, factor] = /Order (\d) times (\d)/.exec(asked) ?? []
  return isFirst ? call('order_part', { id: `${item}x${factor}` }) : reply({ text: `ordered ${item}` })
}
