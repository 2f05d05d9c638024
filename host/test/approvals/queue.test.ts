import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import { HostEvent } from '#specs/protocol/event.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { DecisionRecord } from '../../approvals/decisions.ts'
import { ApprovalQueue, type ApprovalQueueOptions, type HostQuestion } from '../../approvals/queue.ts'

const request = (over: Partial<ApprovalRequest> = {}): ApprovalRequest => ({
  approvalId: 'a1',
  runId: 'run-00000000000000000001',
  agentPath: 'root',
  stepId: 's',
  callId: 'c',
  tool: 'delete_file',
  arguments: '{"path":"old.txt"}',
  preview: 'deletes old.txt',
  ...over,
})

const isRequest = (event: HostEvent) => event.type === 'approval-request'

function open(options: Partial<ApprovalQueueOptions> = {}) {
  const events: HostEvent[] = []
  const waits: number[] = []
  const queue = new ApprovalQueue({
    mode: 'ask',
    rules: [],
    interactive: true,
    record: async (event) => events.push(event),
    onWaiting: (change) => waits.push(change),
    ...options,
  })
  return { queue, events, waits }
}

/** A question of the host about network access; `known` is what it knows by now. */
const accessQuestion = (
  over: Partial<HostQuestion['access']> = {},
  known: () => DecisionRecord | undefined = () => undefined,
): HostQuestion => ({
  access: {
    from: 'agent',
    address: 'https://a.example/',
    because: 'no rule allows it',
    offers: [{ reach: 'suffix', allows: 'a' }],
    ...over,
  },
  call: { tool: 'request_access', arguments: '{"host":"a.example"}' },
  known,
  unattended: { decision: 'deny', scope: 'once', by: 'mode', rule: 'nobody is here' },
  apply: async ({ decision }) => ({ decision }),
})

describe('the approval queue', () => {
  it('denies what asks without a person, also after a yes for the run; rules still decide [A.07 S1.11]', async () => {
    const rules: ApprovalRule[] = [{ effect: 'allow', tool: 'move_path' }]
    const { queue, events } = open({ rules })
    const first = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    queue.answer('a1', { decision: 'allow', scope: 'run' })
    expect(await first).toMatchObject({ decision: 'allow' })
    const alone = { isUnattended: true }
    const again = await queue.ask(request({ approvalId: 'a2', callId: 'c2' }), undefined, undefined, alone)
    expect(again).toMatchObject({ decision: 'deny' })
    const ruled = request({ approvalId: 'a3', callId: 'c3', tool: 'move_path' })
    expect(await queue.ask(ruled, undefined, undefined, alone)).toMatchObject({ decision: 'allow' })
    const access = await queue.ask(request({ approvalId: 'a4' }), undefined, accessQuestion(), alone)
    expect(access).toMatchObject({ decision: 'deny' })
    expect(queue.pending).toEqual([])
    expect(events.filter(isRequest)).toHaveLength(4)
  })

  it('does not ask again what was decided for an agent that was lost, and journals it once [R.01 S1.11]', async () => {
    const { queue, events, waits } = open()
    const { runId: _, ...asked } = request()
    queue.restore(request().runId, {
      decided: [{ request: asked, ruling: { decision: 'allow', scope: 'once', by: 'person', name: 'Ann' } }],
    })
    // The host draws the ids of its own questions anew.
    expect(await queue.ask(request({ approvalId: 'another' }))).toEqual({ decision: 'allow' })
    expect([events, waits]).toEqual([[], []])
    const again = queue.ask(request({ approvalId: 'a2' }))
    await expect.poll(() => queue.pending).toEqual(['a2'])
    queue.answer('a2', { decision: 'deny', scope: 'once' })
    expect(await again).toMatchObject({ decision: 'deny' })
  })

  it('gives a decision that the agent may have had to no other question about the same call [R.01 S1.11]', async () => {
    const { queue, events } = open()
    const { runId: _, ...asked } = request()
    const ruling = { decision: 'allow', scope: 'once', by: 'person' } as const
    queue.restore(request().runId, { decided: [{ request: asked, ruling, onlyUnderItsId: true }] })
    const other = queue.ask(request({ approvalId: 'a2' }))
    await expect.poll(() => queue.pending).toEqual(['a2'])
    queue.answer('a2', { decision: 'deny', scope: 'once' })
    expect(await other).toMatchObject({ decision: 'deny' })
    const before = events.length
    expect(await queue.ask(request())).toEqual({ decision: 'allow' })
    expect(events).toHaveLength(before)
  })

  it('a question that waits while another agent continues the run keeps its id, and answers of meanwhile apply [R.12 S1.11]', async () => {
    const { queue, events, waits } = open()
    const old = new AbortController()
    const color = { approvalId: 'color', callId: 'c1' }
    const size = { approvalId: 'size', callId: 'c2' }
    const shape = { approvalId: 'shape', callId: 'c3' }
    const before = [color, size, shape].map((one) => queue.ask(request(one), old.signal))
    await expect.poll(() => queue.pending).toEqual(['color', 'size', 'shape'])
    const answered = queue.park()
    old.abort()
    const allow = { decision: 'allow', scope: 'once' } as const
    expect(queue.answer('color', allow)).toEqual({ taken: true })
    await answered
    await queue.unpark()
    expect(queue.pending).toEqual(['size', 'shape'])
    // No agent has asked again yet.
    expect(queue.answer('size', { ...allow, decision: 'deny' })).toEqual({ taken: true })
    const resolved = queue.whenResolved('shape')
    expect(await queue.ask(request(size))).toEqual({ decision: 'deny' })
    const again = queue.ask(request(shape))
    expect(queue.answer('shape', allow)).toEqual({ taken: true })
    await resolved
    expect(await again).toEqual({ decision: 'allow' })
    expect((await Promise.all(before)).map(({ decision }) => decision)).toEqual(['allow', 'deny', 'deny'])
    const decided = events.filter(({ type }) => type === 'approval-decision')
    expect(decided).toMatchObject(
      ['color', 'size', 'shape'].map((approvalId) => ({ approvalId, by: 'person' })),
    )
    expect(waits.reduce((sum, change) => sum + change, 0)).toBe(0)
    expect(queue.pending).toEqual([])
  })

  it('two open questions about the same call each keep their answer while another agent continues the run [R.12 S1.11]', async () => {
    const ids = ['one', 'two', 'three', 'four']
    // The agent gave these calls no ids of their own.
    const calls = ids.map((id) => ({ approvalId: id, callId: id }))
    const answerOf = (id: string) => ({ decision: 'allow', scope: 'once', hint: `hint of ${id}` }) as const
    const first = open()
    for (const one of calls) void first.queue.ask(request(one))
    await expect.poll(() => first.events.length).toBe(ids.length)
    const { queue, events } = open()
    queue.restore(request().runId, { decided: [], open: first.events.filter(isRequest) })
    expect(queue.pending).toEqual(ids)
    for (const id of ['one', 'three']) expect(queue.answer(id, answerOf(id))).toEqual({ taken: true })
    await expect.poll(() => events.filter(({ type }) => type === 'approval-decision').length).toBe(2)
    const asked = calls.toReversed().map((one) => queue.ask(request(one)))
    for (const id of ['two', 'four']) expect(queue.answer(id, answerOf(id))).toEqual({ taken: true })
    expect(await Promise.all(asked)).toEqual(
      ids.toReversed().map((id) => ({ decision: 'allow', hint: `hint of ${id}` })),
    )
    expect(queue.pending).toEqual([])
    const decided = events.flatMap((event) => (event.type === 'approval-decision' ? [event] : []))
    expect(decided.map(({ approvalId, by }) => [approvalId, by]).toSorted()).toEqual(
      ids.toSorted().map((id) => [id, 'person']),
    )
    // A decision answers one question, also where an agent was lost before it asked.
    const { runId: _, ...again } = request({ approvalId: 'five', callId: 'five' })
    const ruling = { decision: 'allow', scope: 'once', by: 'person' } as const
    for (let loss = 0; loss < 2; loss += 1)
      queue.restore(request().runId, { decided: [{ request: again, ruling }] })
    expect(await queue.ask(request({ approvalId: 'five', callId: 'five' }))).toEqual({ decision: 'allow' })
    const other = queue.ask(request({ approvalId: 'six', callId: 'six' }))
    await expect.poll(() => queue.pending).toEqual(['six'])
    expect(queue.answer('six', { decision: 'deny', scope: 'once' })).toEqual({ taken: true })
    expect(await other).toEqual({ decision: 'deny' })
  })

  it('takes answers to questions that another process left, before an agent asks again [R.12 S1.11]', async () => {
    const first = open()
    const calls = ['color', 'size', 'shape', 'weight', 'never'].map((approvalId) => ({
      approvalId,
      callId: `call of ${approvalId}`,
    }))
    for (const one of calls) void first.queue.ask(request(one))
    await expect.poll(() => first.events.length).toBe(calls.length)
    const { queue, events, waits } = open()
    queue.restore(request().runId, { decided: [], open: first.events.filter(isRequest) })
    expect([queue.pending, waits, events]).toEqual([calls.map(({ approvalId }) => approvalId), [], []])
    const allow = { decision: 'allow', scope: 'once' } as const
    expect(queue.answer('color', allow)).toEqual({ taken: true })
    expect(queue.answer('color', allow)).toMatchObject({ taken: false, reason: 'decided' })
    await expect.poll(() => events.map(({ type }) => type)).toEqual(['approval-request', 'approval-decision'])
    expect(await queue.ask(request(calls[0]))).toEqual({ decision: 'allow' })
    const size = queue.ask(request(calls[1]))
    expect(queue.answer('size', { ...allow, decision: 'deny' })).toEqual({ taken: true })
    expect(await size).toEqual({ decision: 'deny' })
    // An answer for the run decides the questions that agents ask again later, too.
    const shape = queue.ask(request(calls[2]))
    expect(queue.answer('shape', { ...allow, scope: 'run' })).toEqual({ taken: true })
    expect(await shape).toEqual({ decision: 'allow' })
    expect(await queue.ask(request(calls[3]))).toEqual({ decision: 'allow' })
    queue.close()
    expect(queue.pending).toEqual([])
    const told = events.flatMap((event) =>
      event.type === 'approval-decision' ? [`${event.approvalId}: ${event.decision}, ${event.by}`] : [],
    )
    expect(told).toEqual([
      'color: allow, person',
      'size: deny, person',
      'shape: allow, person',
      'weight: allow, person',
    ])
    expect(events.filter(isRequest).map((event) => event.request.approvalId)).toEqual([
      'color',
      'size',
      'shape',
      'weight',
    ])
    expect(waits.reduce((sum, change) => sum + change, 0)).toBe(0)
  })

  it('waits for a person, takes the first answer and journals both [S1.11]', async () => {
    const { queue, events, waits } = open()
    const decision = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    expect(queue.answer('a1', { decision: 'deny', scope: 'once', hint: 'move it instead' })).toMatchObject({
      taken: true,
    })
    expect(queue.answer('a1', { decision: 'allow', scope: 'once' })).toMatchObject({ taken: false })
    expect(await decision).toEqual({ decision: 'deny', hint: 'move it instead' })
    expect(events.map(({ type }) => type)).toEqual(['approval-request', 'approval-decision'])
    expect(events[1]).toMatchObject({ by: 'person', decision: 'deny' })
    expect(waits).toEqual([1, -1])
  })

  it('takes an answer durably once the journal has it, and not where the journal fails or the run ends before [S1.11 R.01]', async () => {
    const writes: PromiseWithResolvers<void>[] = []
    const record = async ({ type }: HostEvent) => {
      if (type !== 'approval-decision') return
      const write = Promise.withResolvers<void>()
      writes.push(write)
      await write.promise
    }
    const { queue } = open({ record })
    const by = { name: 'Ann', via: 'http' } as const
    const end = Promise.withResolvers<void>()
    const answered = async (approvalId: string) => {
      const asked = queue.ask(request({ approvalId, callId: approvalId })).catch(String)
      await expect.poll(() => queue.pending).toEqual([approvalId])
      const taken = queue.answerDurably(approvalId, { decision: 'allow', scope: 'once' }, by, end.promise)
      await expect.poll(() => queue.pending).toEqual([])
      return { asked, taken }
    }

    const first = await answered('a1')
    expect(await Promise.race([first.taken, 'not yet'])).toBe('not yet')
    writes[0]?.resolve()
    expect(await first.taken).toEqual({ taken: true })
    expect(await first.asked).toEqual({ decision: 'allow' })

    const second = await answered('a2')
    writes[1]?.reject(new Error('the disk is full'))
    expect(await second.taken).toMatchObject({ taken: false, reason: 'connection_lost' })
    expect(await second.asked).toBe('Error: the disk is full')

    const third = await answered('a3')
    end.resolve()
    expect(await third.taken).toMatchObject({ taken: false, reason: 'connection_lost' })
  })

  it('says who answered and by what way, and tells whoever answers later [S1.11 A.08]', async () => {
    const { queue, events } = open()
    const decision = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    queue.answer('a1', { decision: 'deny', scope: 'once' }, { name: 'ann', via: 'terminal' })
    await decision
    expect(events[1]).toMatchObject({ by: 'person', name: 'ann', via: 'terminal' })
    expect(queue.answer('a1', { decision: 'allow', scope: 'once' })).toEqual({
      taken: false,
      reason: 'decided',
      message: expect.stringMatching(
        /^a1 was already denied by ann \(terminal\) at 2\d{3}-[\d-]+ \d\d:\d\d \S+; /,
      ),
    })
    expect(queue.answer('a2', { decision: 'allow', scope: 'once' })).toMatchObject({
      taken: false,
      reason: 'unknown',
      message: expect.stringContaining('no approval of this run has the ID "a2"'),
    })
    const ruled = open({ rules: [{ effect: 'deny', tool: '*' }] })
    await ruled.queue.ask(request())
    expect(ruled.queue.answer('a1', { decision: 'allow', scope: 'once' })).toMatchObject({
      reason: 'decided',
      message: expect.stringContaining('denied by a rule'),
    })
  })

  it('offers its answers in the event and in the state, accepts each of them, and names them where it refuses another [S1.11]', async () => {
    const plan = { goal: 'g', steps: [{ id: 'a', title: 'A', instructions: 'do' }] }
    const questions = [
      request(),
      request({ tool: 'submit_plan', stepId: 'plan', arguments: JSON.stringify(Plan.parse(plan)) }),
      request({ tool: 'ask_user', question: { question: 'Which?', kind: 'text' } }),
    ]
    for (const asked of questions) {
      const probe = open()
      void probe.queue.ask(asked)
      await expect.poll(() => probe.queue.pending).toEqual(['a1'])
      const event = HostEvent.parse(probe.events[0])
      if (event.type !== 'approval-request') throw new Error(event.type)
      const { answers = [] } = event
      const state = reduceRun(initialRunState, { event })
      expect(state.pendingApprovals).toMatchObject({ a1: { kind: 'cooperative', tool: asked.tool, answers } })
      expect(answers.map(({ decision, scope }) => `${decision} ${scope}`)).toContain('deny once')
      for (const { decision, scope, needs } of answers) {
        const { queue } = open()
        void queue.ask(asked)
        await expect.poll(() => queue.pending).toEqual(['a1'])
        const answer = needs === undefined ? {} : { answer: 'this' }
        expect(queue.answer('a1', { decision, scope, ...answer })).toEqual({ taken: true })
      }
      expect(probe.queue.answer('a1', { decision: 'allow', scope: 'always' })).toMatchObject({
        reason: 'not_offered',
        message: expect.stringContaining(answers[0]?.label ?? '-'),
      })
    }
  })

  it('takes an answer with a digest for the question that it is of, and for no other [S1.11]', async () => {
    const { queue } = open()
    const first = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    const yes = { decision: 'allow', scope: 'once' } as const
    const changed = { taken: false, reason: 'question_changed' }
    expect(queue.answer('a1', { ...yes, digest: '0'.repeat(64) })).toMatchObject(changed)
    expect(queue.answer('a1', { ...yes, digest: 'none' })).toMatchObject({ reason: 'not_offered' })
    expect(queue.pending).toEqual(['a1'])
    const { events, queue: same } = open()
    void same.ask(request())
    await expect.poll(() => same.pending).toEqual(['a1'])
    const state = reduceRun(initialRunState, { event: HostEvent.parse(events[0]) })
    const digest = digestOfQuestion({ runId: request().runId, approval: state.pendingApprovals.a1 })
    expect(queue.answer('a1', { ...yes, digest })).toEqual({ taken: true })
    expect(await first).toEqual({ decision: 'allow' })
  })

  it('denies a request under the id of a pending question, which stays open', async () => {
    const { queue, events } = open()
    const first = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    expect(await queue.ask(request({ arguments: '{"path":"/etc"}' }))).toMatchObject({ decision: 'deny' })
    queue.answer('a1', { decision: 'allow', scope: 'once' })
    expect(await first).toEqual({ decision: 'allow' })
    expect(events).toHaveLength(2)
  })

  it('keeps an answer for the run to the tool it was given for', async () => {
    const { queue } = open()
    const first = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    queue.answer('a1', { decision: 'allow', scope: 'run' })
    await first
    expect(await queue.ask(request({ approvalId: 'a2', arguments: '{"path":"b"}' }))).toEqual({
      decision: 'allow',
    })
    void queue.ask(request({ approvalId: 'a3', tool: 'run_bash', arguments: '{"command":"x"}' }))
    await expect.poll(() => queue.pending).toEqual(['a3'])
  })

  it('asks again once an answer for the run is revoked or has expired, and journals the revocation [S1.11]', async () => {
    let now = 1_000
    const { queue, events } = open({ now: () => now })
    const first = queue.ask(request())
    const second = queue.ask(request({ approvalId: 'a2', arguments: '{"path":"b"}' }))
    await expect.poll(() => queue.pending).toEqual(['a1', 'a2'])
    queue.answer('a1', { decision: 'allow', scope: 'run' })
    // Before the answer itself is journaled.
    const revoked = queue.revoke('a1', 'ann')
    expect([await first, await second, await revoked]).toEqual([
      { decision: 'allow' },
      { decision: 'allow' },
      true,
    ])
    expect(events.slice(2)).toMatchObject([
      { type: 'approval-decision', approvalId: 'a1', scope: 'run' },
      { type: 'approval-decision', approvalId: 'a2', scope: 'run', earlierId: 'a1' },
      { type: 'approval-revoke', approvalId: 'a1', by: 'ann' },
    ])
    expect(events.reduce((state, event) => reduceRun(state, { event }), initialRunState).runAnswers).toEqual(
      {},
    )
    expect([await queue.revoke('a1', 'ann'), await queue.revoke('a2', 'ann')]).toEqual([false, false])
    const third = queue.ask(request({ approvalId: 'a3' }))
    await expect.poll(() => queue.pending).toEqual(['a3'])
    queue.answer('a3', { decision: 'allow', scope: 'run', forMs: 60_000 })
    expect(await third).toEqual({ decision: 'allow' })
    expect(events.at(-1)).toMatchObject({ approvalId: 'a3', until: 61_000 })
    now = 60_999
    expect(await queue.ask(request({ approvalId: 'a4' }))).toEqual({ decision: 'allow' })
    now = 61_000
    void queue.ask(request({ approvalId: 'a5' }))
    await expect.poll(() => queue.pending).toEqual(['a5'])
    expect(await queue.revoke('a3', 'ann')).toBe(false)
    queue.close()
  })

  it('lets only an answer for the run about calls expire [S1.11]', async () => {
    const { queue } = open()
    void queue.ask(request())
    void queue.ask(request({ approvalId: 'a2' }), undefined, accessQuestion())
    await expect.poll(() => queue.pending).toEqual(['a1', 'a2'])
    for (const refused of [
      { decision: 'allow', scope: 'once', forMs: 1 },
      { decision: 'allow', scope: 'run', forMs: 0 },
      { decision: 'allow', scope: 'run', forMs: 2 ** 40 },
    ] as const)
      expect(queue.answer('a1', refused)).toMatchObject({ taken: false, reason: 'not_offered' })
    const access = { decision: 'allow', scope: 'run', reach: 'suffix', forMs: 1 } as const
    expect(queue.answer('a2', access)).toMatchObject({ taken: false, reason: 'not_offered' })
    expect(queue.answer('a1', { decision: 'deny', scope: 'run', forMs: 1 })).toEqual({ taken: true })
  })

  it('asks about each call of a replay, which has an answer for each [S1.11]', async () => {
    const { queue } = open({ keepsRunAnswers: false })
    const both = [queue.ask(request()), queue.ask(request({ approvalId: 'a2' }))]
    await expect.poll(() => queue.pending).toEqual(['a1', 'a2'])
    queue.answer('a1', { decision: 'allow', scope: 'run' })
    queue.answer('a2', { decision: 'deny', scope: 'run' })
    expect(await Promise.all(both)).toEqual([{ decision: 'allow' }, { decision: 'deny' }])
    void queue.ask(request({ approvalId: 'a3' }))
    await expect.poll(() => queue.pending).toEqual(['a3'])
  })

  it('has a person look at what has to be looked at, whatever they allowed for the run, and hears a no for the run [A.10, S1.11]', async () => {
    const { queue } = open()
    const plain = queue.ask(request())
    const looked = queue.ask(request({ approvalId: 'h1' }), undefined, undefined, { mustAsk: true })
    await expect.poll(() => queue.pending).toEqual(['a1', 'h1'])
    queue.answer('a1', { decision: 'allow', scope: 'run' })
    expect(await plain).toEqual({ decision: 'allow' })
    expect(queue.pending).toEqual(['h1'])
    queue.answer('h1', { decision: 'deny', scope: 'run' })
    expect(await looked).toEqual({ decision: 'deny' })
    const again = queue.ask(request({ approvalId: 'h2' }), undefined, undefined, { mustAsk: true })
    expect(await again).toEqual({ decision: 'deny' })
  })

  it('takes no answer that a tool’s question does not offer; the question stays open [S1.11]', async () => {
    const { queue } = open()
    const decision = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    expect(queue.answer('a1', { decision: 'allow', scope: 'always' })).toMatchObject({ taken: false })
    expect(queue.answer('a1', { decision: 'allow', scope: 'once', reach: 'host' })).toMatchObject({
      taken: false,
    })
    expect(queue.pending).toEqual(['a1'])
    expect(queue.answer('a1', { decision: 'allow', scope: 'once' })).toMatchObject({ taken: true })
    expect(await decision).toEqual({ decision: 'allow' })
  })

  it('takes no answer of another form, and keeps the question [S1.11]', async () => {
    const { queue, events } = open()
    const decision = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    const wrong: unknown[] = [
      undefined,
      'yes',
      {},
      { decision: 'yes', scope: 'once' },
      { decision: true, scope: 'once' },
      { decision: 'allow' },
      { decision: 'allow', scope: 'ever' },
      { decision: 'deny', scope: 'once', hint: 7 },
    ]
    for (const answer of wrong)
      expect(queue.answer('a1', answer as never), JSON.stringify(answer)).toMatchObject({ taken: false })
    expect(queue.pending).toEqual(['a1'])
    expect(events).toHaveLength(1)
    queue.answer('a1', { decision: 'deny', scope: 'once' })
    expect(await decision).toEqual({ decision: 'deny' })
  })

  it('keeps a question of the host’s own apart from the tool’s standing answers, and carries its answer out after it is journaled [S1.11]', async () => {
    const { queue, events } = open()
    const seen: string[] = []
    const allow = { decision: 'allow', scope: 'once' } as const
    const enforced = {
      access: {
        from: 'agent',
        address: 'https://a.example/',
        because: 'no rule allows it',
        offers: [{ reach: 'suffix', allows: 'a' }],
      },
      call: { tool: 'request_access', arguments: '{"host":"a.example"}' },
      known: () => undefined,
      unattended: { decision: 'deny', scope: 'once', by: 'mode' },
      apply: async ({ scope, reach }: DecisionRecord) => {
        seen.push(`${scope} ${reach} after ${events.at(-1)?.type}`)
        return { decision: 'allow', hint: 'now' }
      },
    } as const satisfies HostQuestion
    const way = queue.ask(request({ tool: 'request_access' }), undefined, enforced)
    const tool = queue.ask(request({ approvalId: 'a2', tool: 'request_access' }))
    await expect.poll(() => queue.pending).toEqual(['a1', 'a2'])
    queue.answer('a2', { decision: 'allow', scope: 'run' })
    expect(await tool).toEqual({ decision: 'allow' })
    expect(queue.pending).toEqual(['a1'])
    expect(queue.answer('a1', allow)).toMatchObject({ taken: true })
    expect(await way).toEqual({ decision: 'allow', hint: 'now' })
    expect(seen).toEqual(['once suffix after approval-decision'])
  })

  it('journals whether host or agent enforces the answer, with a digest of all that was asked [S1.11]', async () => {
    const { queue, events } = open({ mode: 'all' })
    const question = (text: string) =>
      ({ question: { question: text, kind: 'text', defaultAnswer: 'x' } }) as const
    await queue.ask(request())
    await queue.ask(request({ approvalId: 'a2' }), undefined, undefined, { askedBy: 'host' })
    await queue.ask(request({ approvalId: 'a3' }), AbortSignal.abort(), accessQuestion())
    await queue.ask(request({ approvalId: 'a4', ...question('one') }))
    await queue.ask(request({ approvalId: 'a5', ...question('two') }))
    const asked = events.filter((event) => event.type === 'approval-request')
    expect(asked.map(({ kind }) => kind)).toEqual([
      'cooperative',
      'enforced',
      'enforced',
      'cooperative',
      'cooperative',
    ])
    expect(asked.map(({ access }) => access?.address)).toEqual([
      undefined,
      undefined,
      'https://a.example/',
      undefined,
      undefined,
    ])
    const [first, second, , one, two] = asked.map(({ digest }) => digest)
    expect(first).toBe(second)
    expect(new Set([first, one, two]).size).toBe(3)
  })

  it('tells the asker of a decision, and who waits on a question when it is settled [S1.11]', async () => {
    const { queue } = open()
    const decided: DecisionRecord[] = []
    const decision = queue.ask(request(), undefined, undefined, { onDecision: (one) => decided.push(one) })
    await expect.poll(() => queue.pending).toEqual(['a1'])
    let isResolved = false
    const resolved = queue.whenResolved('a1').then(() => {
      isResolved = true
    })
    await new Promise((next) => setImmediate(next))
    expect([isResolved, decided]).toEqual([false, []])
    queue.answer('a1', { decision: 'allow', scope: 'once' })
    await resolved
    await decision
    expect(decided).toMatchObject([{ decision: 'allow', by: 'person' }])
  })

  it('applies an answer for the run to the waiting questions of its tool alone, and one for once to none [S1.11]', async () => {
    const { queue } = open({ rules: [{ effect: 'ask', tool: 'delete_file', pattern: 'src/*' }] })
    const tools = ['delete_file', 'delete_file', 'run_bash', 'delete_file']
    const [first, second, , ruled] = tools.map((tool, at) =>
      queue.ask(
        request({ approvalId: `a${at}`, tool, ...(at === 3 ? { arguments: '{"path":"src/a"}' } : {}) }),
      ),
    )
    await expect.poll(() => queue.pending).toHaveLength(4)
    queue.answer('a0', { decision: 'allow', scope: 'once' })
    expect(await first).toEqual({ decision: 'allow' })
    expect(queue.pending).toEqual(['a1', 'a2', 'a3'])
    const again = queue.ask(request({ approvalId: 'b1' }))
    await expect.poll(() => queue.pending).toEqual(['a1', 'a2', 'a3', 'b1'])
    queue.answer('b1', { decision: 'allow', scope: 'run' })
    expect([await again, await second]).toEqual([{ decision: 'allow' }, { decision: 'allow' }])
    expect(queue.pending).toEqual(['a2', 'a3'])
    queue.answer('a3', { decision: 'deny', scope: 'once' })
    expect(await ruled).toEqual({ decision: 'deny' })
  })

  it('settles all questions about an access that an answer to one of them decides [S1.11]', async () => {
    const { queue, events } = open()
    let granted: DecisionRecord | undefined
    const known = () => granted
    const first = queue.ask(request(), undefined, accessQuestion({}, known))
    const second = queue.ask(request({ approvalId: 'a2' }), undefined, accessQuestion({}, known))
    const other = queue.ask(request({ approvalId: 'a3' }), undefined, accessQuestion())
    await expect.poll(() => queue.pending).toEqual(['a1', 'a2', 'a3'])
    granted = { decision: 'allow', scope: 'run', by: 'person' }
    queue.answer('a1', { decision: 'allow', scope: 'run', reach: 'suffix' })
    expect([await first, await second]).toEqual([{ decision: 'allow' }, { decision: 'allow' }])
    expect(queue.pending).toEqual(['a3'])
    queue.detach()
    expect(await other).toEqual({ decision: 'deny' })
    expect(events.at(-1)).toMatchObject({ rule: 'nobody is here' })
  })

  it('says of a wait whether the agent knows of it: not of a connection of a program [S1.11]', async () => {
    const unseen: boolean[] = []
    const { queue } = open({ onWaiting: (_, isUnseen) => unseen.push(isUnseen) })
    void queue.ask(request(), undefined, accessQuestion({ from: 'connection' }))
    void queue.ask(request({ approvalId: 'a2' }), undefined, accessQuestion())
    void queue.ask(request({ approvalId: 'a3' }))
    await expect.poll(() => queue.pending).toHaveLength(3)
    queue.close()
    expect(unseen).toEqual([true, false, false, true, false, false])
  })

  it('denies what waits, and what comes later, once nobody can answer any more [S1.11]', async () => {
    const { queue, events } = open()
    const waiting = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    queue.detach()
    expect((await waiting).decision).toBe('deny')
    expect(events.at(-1)).toMatchObject({ by: 'mode', rule: expect.stringContaining('option approvals') })
    expect((await queue.ask(request({ approvalId: 'a2' }))).decision).toBe('deny')
    expect(queue.pending).toEqual([])
  })

  it('keeps an answer that its asker withdraws at the same moment, and no listener on the asker [S1.11]', async () => {
    const { queue } = open()
    const asker = new AbortController()
    const decision = queue.ask(request(), asker.signal)
    await expect.poll(() => queue.pending).toEqual(['a1'])
    queue.answer('a1', { decision: 'allow', scope: 'once' })
    asker.abort()
    expect(await decision).toEqual({ decision: 'allow' })
    const later = new AbortController()
    const second = queue.ask(request({ approvalId: 'a2' }), later.signal)
    await expect.poll(() => getEventListeners(later.signal, 'abort')).toHaveLength(1)
    queue.answer('a2', { decision: 'deny', scope: 'once' })
    await second
    expect(getEventListeners(later.signal, 'abort')).toEqual([])
  })

  it('denies what asks when nobody is there, and names what would allow it', async () => {
    const { queue, events } = open({ interactive: false })
    expect((await queue.ask(request())).decision).toBe('deny')
    expect(events[1]).toMatchObject({
      by: 'mode',
      rule: expect.stringContaining('option approvals.mode: all'),
    })
  })

  it('lets deny win over ask, ask over allow, and rules over modes and standing answers', async () => {
    const rules: ApprovalRule[] = [
      { effect: 'allow', tool: 'delete_file' },
      { effect: 'ask', tool: 'delete_file', pattern: 'src/*' },
      { effect: 'deny', tool: '*', pattern: '*secret*', reason: 'secrets stay' },
    ]
    const { queue } = open({ rules, mode: 'all' })
    expect(await queue.ask(request())).toEqual({ decision: 'allow' })
    const denied = request({ approvalId: 'a2', arguments: '{"path":"src/secret.ts"}' })
    expect(await queue.ask(denied)).toEqual({ decision: 'deny', hint: 'secrets stay' })
    void queue.ask(request({ approvalId: 'a3', arguments: '{"path":"src/a.ts"}' }))
    await expect.poll(() => queue.pending).toEqual(['a3'])
  })

  it('lets a question go that its asker withdraws: denied, journaled with the reason, no longer open [S1.11]', async () => {
    const { queue, events, waits } = open()
    const asker = new AbortController()
    const decision = queue.ask(request(), asker.signal)
    const other = queue.ask(request({ approvalId: 'a2' }), new AbortController().signal)
    await expect.poll(() => queue.pending).toEqual(['a1', 'a2'])
    const settled = queue.whenResolved('a1')
    asker.abort('the step that asked has ended')
    await settled
    expect(queue.pending).toEqual(['a2'])
    expect(queue.answer('a1', { decision: 'allow', scope: 'run' })).toMatchObject({ taken: false })
    expect(await decision).toEqual({ decision: 'deny' })
    expect(events.at(-1)).toMatchObject({ by: 'agent', rule: 'the step that asked has ended' })
    expect(waits).toEqual([1, 1, -1])
    queue.answer('a2', { decision: 'allow', scope: 'once' })
    expect(await other).toEqual({ decision: 'allow' })
    await queue.whenResolved('a2')
  })

  it('does not ask a person what was withdrawn before it came', async () => {
    const { queue, events } = open()
    expect((await queue.ask(request(), AbortSignal.abort())).decision).toBe('deny')
    expect(events[1]).toMatchObject({ by: 'agent' })
    expect(queue.pending).toEqual([])
  })

  it('denies all that waits and all that comes once it is closed', async () => {
    const { queue } = open()
    const waiting = queue.ask(request())
    await expect.poll(() => queue.pending).toEqual(['a1'])
    queue.close()
    expect((await waiting).decision).toBe('deny')
    expect((await queue.ask(request({ approvalId: 'a2' }))).decision).toBe('deny')
  })
})
