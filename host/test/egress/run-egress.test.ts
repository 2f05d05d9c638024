import { type AddressInfo, createServer } from 'node:net'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ApprovalQueue } from '../../approvals/queue.ts'
import { createConnector } from '../../egress/connect.ts'
import { EgressApprovals } from '../../egress/egress-approvals.ts'
import { PersistentGrants } from '../../egress/persistent-grants.ts'
import { makePolicy } from '../../egress/policy.ts'
import { RunEgress } from '../../egress/run-egress.ts'
import { directNetwork } from '../../net/network.ts'
import type { Target } from '../../net/target.ts'

const never = new AbortController().signal
const target = (host = 'name.example', port = 443): Target => ({
  scheme: 'https',
  host,
  port,
  method: null,
  path: null,
})

/** The egress of a run whose names all lead to this machine; `answer` is what the person says. */
async function openEgress({
  rules = [],
  otherwise = 'deny' as 'deny' | 'ask',
  answer,
}: {
  rules?: EgressRule[]
  otherwise?: 'deny' | 'ask'
  answer?: 'allow' | 'deny'
} = {}) {
  const events: HostEvent[] = []
  const approvals: ApprovalQueue = new ApprovalQueue({
    mode: 'ask',
    rules: [],
    interactive: answer !== undefined,
    record: async (event) => {
      events.push(event)
      if (event.type === 'approval-request' && answer !== undefined)
        approvals.answer(event.request.approvalId, { decision: answer, scope: 'run' })
    },
  })
  const policy = makePolicy({ configuration: rules, otherwise })
  if (!policy.ok) throw new Error(policy.error)
  const home = await temporaryFolder('egress')
  const lasting = new PersistentGrants({ home, locks: path.join(home, 'locks') })
  const runId = `run-${'0'.repeat(20)}`
  const egress = new RunEgress({
    policy: policy.value,
    access: new EgressApprovals({ runId, policy: policy.value, approvals, lasting }),
    connect: createConnector({
      network: directNetwork,
      resolve: () => Promise.resolve({ ok: true, value: ['127.0.0.1'] }),
    }),
    note: async (event) => events.push(event) > 0,
  })
  return { egress, events }
}

async function startServer(): Promise<number> {
  const server = createServer((socket) => socket.end('hello'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

describe('the egress of a run', () => {
  it('refuses by default, names the rule and how to ask, and journals it [G.02] [G.03]', async () => {
    const { egress, events } = await openEgress()
    const admitted = await egress.admit(target(), never)
    expect(admitted).toMatchObject({
      ok: false,
      error: {
        status: 403,
        code: 'egress_denied',
        message: expect.stringMatching(/no rule allows it.*request_access/),
      },
    })
    expect(events).toEqual([
      { type: 'egress-denied', target: 'CONNECT name.example:443', reason: 'no rule allows it' },
    ])
  })

  it('connects to what a rule allows, and says which rule it was [G.02]', async () => {
    const port = await startServer()
    const { egress, events } = await openEgress({
      rules: [
        { effect: 'allow', host: 'name.example', ports: [port] },
        { effect: 'allow', host: '127.0.0.1', ports: [port] },
      ],
    })
    const permit = await egress.admit(target('name.example', port), never)
    if (!permit.ok) throw new Error(permit.error.message)
    expect(permit.value.rule).toContain('allow name.example')
    const connected = await egress.connect(permit.value, never)
    expect(connected.ok && (await text(connected.value))).toBe('hello')
    expect(events).toEqual([])
  })

  it('refuses and journals a permitted name that leads inside [G.02] [G.03]', async () => {
    const { egress, events } = await openEgress({ rules: [{ effect: 'allow', host: '*' }] })
    const permit = await egress.admit(target(), never)
    if (!permit.ok) throw new Error(permit.error.message)
    const connected = await egress.connect(permit.value, never)
    expect(connected).toMatchObject({
      error: {
        code: 'egress_denied',
        message: expect.stringMatching(/name\.example is 127\.0\.0\.1.*this machine/),
      },
    })
    expect(events).toMatchObject([{ type: 'egress-denied', reason: expect.stringContaining('127.0.0.1') }])
  })

  it('does not take failing for refusing [G.03]', async () => {
    const port = await startServer()
    const { egress, events } = await openEgress({
      rules: [
        { effect: 'allow', host: 'name.example', ports: [1] },
        { effect: 'allow', host: '127.0.0.1', ports: [1, port] },
      ],
    })
    const permit = await egress.admit(target('name.example', 1), never)
    if (!permit.ok) throw new Error(permit.error.message)
    expect(await egress.connect(permit.value, never)).toMatchObject({
      error: { status: 502, code: 'upstream_unreachable' },
    })
    expect(events).toEqual([])
  })

  it('takes no permit but its own [G.02]', async () => {
    const { egress } = await openEgress({ rules: [{ effect: 'allow', host: '*' }] })
    await expect(egress.connect({ target: target(), rule: 'made up' }, never)).rejects.toThrow(TypeError)
  })

  it('asks where the rules say so; a yes lets this and the next one out, a no refuses [G.02] [G.03]', async () => {
    const allowed = await openEgress({ otherwise: 'ask', answer: 'allow' })
    expect(await allowed.egress.admit(target(), never)).toMatchObject({ ok: true })
    expect(await allowed.egress.admit(target(), never)).toMatchObject({
      ok: true,
      value: { rule: expect.stringContaining('granted for this run') },
    })
    expect(allowed.events.map(({ type }) => type)).toEqual(['approval-request', 'approval-decision'])
    const refused = await openEgress({ rules: [{ effect: 'ask', host: '*' }], answer: 'deny' })
    expect(await refused.egress.admit(target(), never)).toMatchObject({ error: { code: 'egress_denied' } })
    expect(refused.events.map(({ type }) => type)).toEqual([
      'approval-request',
      'approval-decision',
      'egress-denied',
    ])
  })

  it('journals a bounded number of refusals, and says when it stops [G.08]', async () => {
    const { egress, events } = await openEgress()
    for (let count = 0; count < 300; count++) await egress.admit(target(), never)
    expect(events).toHaveLength(256)
    expect(events.at(-1)).toMatchObject({ reason: expect.stringContaining('not listed') })
  })

  it('lets one run out a bounded number of times [G.08]', async () => {
    const { egress } = await openEgress({ rules: [{ effect: 'allow', host: '*' }] })
    for (let count = 0; count < 10_000; count++) await egress.admit(target(), never)
    expect(await egress.admit(target(), never)).toMatchObject({
      error: { message: expect.stringContaining('10000 times') },
    })
  })

  it('journals what went out, however long its address was [S0.12]', async () => {
    const { egress, events } = await openEgress()
    const record = { kind: 'http' as const, rule: 'r', bytesOut: 1, bytesIn: 2, durationMs: 3 }
    egress.record({
      ...record,
      target: `GET https://example.com/${'a'.repeat(2_000)}`,
      error: 'e'.repeat(2_000),
    })
    const [event] = events
    if (event?.type !== 'egress-end') throw new Error('not journaled')
    expect(event).toMatchObject(record)
    expect(event.target).toHaveLength(limits.lineMaxChars)
    expect(event.error).toHaveLength(limits.lineMaxChars)
  })
})
