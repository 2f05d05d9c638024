import { expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { outsideEffects } from '../../forks/outside-effects.ts'
import { Host } from '../../host.ts'
import { checkpoint, runWithMoments } from '../support/run-with-moments.ts'

const order: HostEvent = {
  type: 'host-tool-start',
  ...{ agentPath: 'root', stepId: 'second', callId: 'c1', tool: 'order_part', arguments: '{"id":"a7"}' },
}
const reached: HostEvent = {
  type: 'egress-end',
  ...{ kind: 'tunnel', target: 'a.example:443', rule: 'r', bytesOut: 1, bytesIn: 1, durationMs: 1 },
}
const starts: HostEvent = { type: 'egress-start', kind: 'tunnel', target: 'open.example:443', rule: 'r' }
const applied = (paths: number): HostEvent => ({
  type: 'apply-end',
  ...{ applied: paths, leftOut: 0, conflicts: [], failed: [], total: paths },
})
const undone: HostEvent = { type: 'undo-end', restored: 2, conflicts: [], total: 0 }
const sees: HostEvent = { ...reached, kind: 'fetch', target: 'GET https://b.example/' }

async function place(later: readonly HostEvent[], isOver = false) {
  const home = await temporaryFolder('rewind')
  const env = { HOME: home, CAISSON_HOME: `${home}/state`, CAISSON_CACHE: `${home}/cache` }
  const host = new Host({ env })
  const { runId } = await runWithMoments(host, home, { later, isOver })
  return { host, runId }
}

it('effects outside the VM are calls of host tools, what programs reached, and changes that are still applied [V.05]', () => {
  const lines = [order, order, reached, starts, sees, applied(2)].map((event) => ({ event }))
  expect(outsideEffects(lines)).toEqual([
    'order_part ran on this host: {"id":"a7"}',
    'a program reached a.example:443',
    'a program reached open.example:443',
    '2 of its changes are applied to the workspace',
  ])
  expect(outsideEffects([...lines.slice(5), { event: undone }])).toEqual([])
  const many = Array.from({ length: 30 }, (_, id) => ({ event: { ...order, arguments: `${id}` } as const }))
  expect(outsideEffects(many)).toHaveLength(20)
  expect(outsideEffects(many).at(-1)).toBe('11 more')
})

it('a rewind past an effect outside the VM is refused and names it, unless a person accepts it [V.05]', async () => {
  const { host, runId } = await place([order, checkpoint('cp-5', 5)])
  await expect(host.rewind(runId, { to: 'second' })).rejects.toThrow(/second.*order_part ran on this host/)
  expect(await host.runs.ids()).toEqual([runId])
  const rewound = await host.rewind(runId, { to: 'second', despiteEffects: true })
  expect(rewound).toMatchObject({ step: 'second', effects: ['order_part ran on this host: {"id":"a7"}'] })
  const [start] = await host.runs.read(rewound.runId)
  expect(start?.event).toMatchObject({
    forkedFrom: { runId, step: 'second', despite: rewound.effects },
  })
})

it('an interrupted run ends as another takes its place, and one that has ended stays as it is [V.05]', async () => {
  const { host, runId } = await place([])
  const rewound = await host.rewind(runId, { to: 'second', prompt: 'use tabs' })
  expect((await host.runs.read(runId)).at(-1)?.event).toMatchObject({
    ...{ type: 'run-end', outcome: 'cancelled', message: `rewound to second as ${rewound.runId}` },
  })
  const again = await host.rewind(runId, { to: 'first' })
  const ended = await host.runs.read(runId)
  expect(ended.filter(({ event }) => event.type === 'run-end')).toHaveLength(1)
  expect((await host.runs.read(again.runId))[0]?.event).toMatchObject({
    forkedFrom: { runId, step: 'first' },
  })
})

it('of several rewinds at once each run that one made is named, by its result or its error [V.05]', async () => {
  const { host, runId } = await place([])
  const rewinds = await Promise.allSettled(
    Array.from({ length: 8 }, () => host.rewind(runId, { to: 'second' })),
  )
  const made = (await host.runs.ids()).filter((id) => id !== runId)
  const named = rewinds.flatMap((rewind) =>
    rewind.status === 'fulfilled'
      ? [rewind.value.runId]
      : (/^(run-[0-9a-f]+) was made, but run-/.exec(CaissonError.from(rewind.reason).message)?.[1] ?? []),
  )
  expect(made.length).toBeGreaterThan(0)
  expect(named.toSorted()).toEqual(made.toSorted())
})
