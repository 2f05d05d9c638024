// What a person does to the agent in a real VM: a plan alone, a plan handed over or changed, a message, a hold, a cancel.
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import { type PlainReply, reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ModelServer, startModelServer } from '#specs/testing/model-server.ts'
import type { Run } from '../../runs/run.ts'
import { textOf } from '../control/support.ts'
import { findVms, finish, readFiles, testBench } from '../support/runs.ts'

const plan = Plan.parse({
  goal: 'Say hello',
  steps: [
    {
      id: 'hello',
      title: 'Write hello.txt',
      instructions: 'Write hello to hello.txt.',
      writes: ['hello.txt'],
    },
  ],
})

/** A model that plans as above, and otherwise says what the test wants. `done`: how many calls have their results. */
async function scripted(
  answer: (asked: Asked, done: number) => PlainReply | Promise<PlainReply>,
): Promise<ModelServer> {
  return await startModelServer(async (asked) => {
    const done = asked.messages.filter(({ role }) => role === 'tool').length
    return reply(await answer(asked, done))
  })
}

const isPlanning = ({ tools }: Asked) => tools.some((tool) => tool.function.name === 'submit_plan')
const call = (name: string, args: object, id = `call${name.slice(0, 5)}`) => ({
  calls: [{ id, name, arguments: args }],
})
const submit = call('submit_plan', plan, 'plan00001')

async function openBench(model: ModelServer) {
  return await testBench({ 'a.txt': 'a\n' }, { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'test/model' })
}

/** Waits until the run shows an event of this type. */
async function sees(run: Run, type: string): Promise<void> {
  for await (const item of run.watch()) if (item.source !== 'delta' && item.event.type === type) return
  throw new Error(`the run ended without ${type}`)
}

/** A command in the run's VM, by a person. */
async function inVm(
  bench: Awaited<ReturnType<typeof testBench>>,
  run: Run,
  command: string,
): Promise<string> {
  const vm = await bench.host.vms.find(run.id)
  const shell = await vm.openShell({ argv: ['sh', '-c', command], terminal: null })
  shell.stdin.end()
  const [out, err] = await Promise.all([textOf(shell.stdout), textOf(shell.stderr)])
  await shell.ended
  return out + err
}

describe('the events of a run', () => {
  it('carry the turns as they are written, exit codes, paths, diffs, the time left and what the VM uses [S1.10]', async () => {
    const replies: PlainReply[] = [
      { ...call('run_bash', { command: 'echo out; echo err >&2; exit 3' }), reasoning: 'First a command.' },
      call('write_file', { path: 'hello.txt', content: 'hello\n' }),
      { text: 'hello.txt is written.' },
    ]
    const used = Promise.withResolvers<void>()
    await using model = await scripted(async (asked, done) => {
      if (isPlanning(asked)) return submit
      if (done === replies.length - 1) await used.promise
      return replies[done] ?? { text: 'done' }
    })
    const bench = await openBench(model)
    const run = await bench.start('Say hello')
    const deltas: object[] = []
    const watching = (async () => {
      for await (const item of run.watch()) {
        if (item.source !== 'delta') continue
        deltas.push(item.delta)
        const isChangeTold = deltas.some((delta) => JSON.stringify(delta).includes('"path":"hello.txt"'))
        if (isChangeTold && deltas.some((delta) => 'cpuPercent' in delta)) used.resolve()
      }
      used.resolve()
    })()
    const { events, state } = await finish(run)
    await watching
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const of = (type: string) => events.filter((event) => event.type === type)
    const byTool = (tool: string) => of('tool-end').find((event) => 'tool' in event && event.tool === tool)
    expect(byTool('run_bash')).toMatchObject({ exitCode: 3 })
    expect(byTool('write_file')).toMatchObject({
      writes: ['hello.txt'],
      diffs: [{ path: 'hello.txt', added: 1, removed: 0, diff: expect.stringContaining('+hello') }],
    })
    expect(of('tool-start')).toContainEqual(expect.objectContaining({ tool: 'run_bash', kind: 'execute' }))
    expect(of('turn-end')).toContainEqual(expect.objectContaining({ reasoning: 'First a command.' }))
    expect(deltas).toContainEqual({ type: 'prepare', what: 'vm', text: 'starting a VM' })
    const soFar = [{ path: 'hello.txt', kind: 'added', added: 1, removed: 0 }]
    expect(deltas).toContainEqual({ type: 'changes', paths: soFar, isPartial: false })
    expect(deltas).toContainEqual({ type: 'prepare', what: 'changes', text: 'reading the changes' })
    expect(deltas).toContainEqual(expect.objectContaining({ type: 'time-left', remainingMs: 1_800_000 }))
    const use = deltas.find((delta) => 'memoryMaxBytes' in delta && 'cpuPercent' in delta)
    expect(use).toMatchObject({
      type: 'vm-use',
      memoryBytes: expect.any(Number),
      diskBytes: expect.any(Number),
    })
    expect(deltas).toContainEqual(expect.objectContaining({ type: 'arguments-delta', tool: 'write_file' }))
    expect(deltas).toContainEqual(expect.objectContaining({ type: 'reasoning-delta', offset: 0 }))
    for (const stream of ['stdout', 'stderr'])
      expect(deltas).toContainEqual(
        expect.objectContaining({
          type: 'tool-output-delta',
          stream,
          offset: 0,
          text: `${stream.slice(3)}\n`,
        }),
      )
    expect(deltas).toContainEqual(
      expect.objectContaining({
        type: 'text-delta',
        stepId: 'hello',
        turn: 3,
        text: 'hello.txt is written.',
      }),
    )
  })
})

describe('a run that only plans', () => {
  it('can change nothing in its VM whoever tries, has no network access for programs, and ends with its plan [S0.07 A.11]', async () => {
    const seen = Promise.withResolvers<void>()
    const looked = Promise.withResolvers<void>()
    const attempts = [
      call('run_bash', { command: 'echo x > new.txt; rm -f a.txt; cat a.txt; echo code=$?' }),
      call('run_bash', {
        command: 'curl -sS -m 5 http://192.0.2.1/; curl -sS -m 5 https://example.com/; echo out',
      }),
      call('write_file', { path: 'new.txt', content: 'x' }),
    ]
    await using model = await scripted(async (_, done) => {
      const next = attempts[done]
      if (next !== undefined) return next
      seen.resolve()
      await looked.promise
      return submit
    })
    const bench = await openBench(model)
    const run = await bench.start('Say hello', {
      plan: { only: true },
      egress: { rules: [{ effect: 'allow', host: 'example.com' }] },
    })
    const finished = finish(run)
    await Promise.race([seen.promise, finished])
    const byPerson = await inVm(
      bench,
      run,
      'exec 2>&1; cd /mnt/workspace; touch mine; mkdir d; chmod 777 a.txt; ls',
    )
    looked.resolve()
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(byPerson).toMatch(/touch: .*[Rr]ead-only[\s\S]*mkdir: .*[Rr]ead-only[\s\S]*chmod: .*[Rr]ead-only/)
    expect(byPerson.trim().split('\n').at(-1)).toBe('a.txt')
    const outputs = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : []))
    expect(outputs[0]).toMatch(/^a\ncode=0\n[\s\S]*[Rr]ead-only[\s\S]*[Rr]ead-only/)
    expect(outputs[1]).toMatch(/the run only plans/)
    expect(events.filter(({ type }) => type === 'egress-denied').length).toBeGreaterThan(0)
    expect(
      events.some(
        (event) => event.type === 'tool-end' && event.tool === 'write_file' && event.error === undefined,
      ),
    ).toBe(false)
    expect(state.plan).toEqual(plan)
    expect(state.changes).toBeNull()
    expect(events.map(({ type }) => type)).not.toContain('step-start')
    expect(await readFiles(bench.workspace)).toEqual({ 'a.txt': 'a\n' })

    expect(model.asked).toHaveLength(attempts.length + 1)
  })
})

describe('a plan that is handed over', () => {
  it('is carried out as it is, and the model makes none [S0.03 A.11]', async () => {
    await using model = await scripted((_, done) =>
      done === 0 ? call('write_file', { path: 'hello.txt', content: 'hello' }) : { text: 'done' },
    )
    const bench = await openBench(model)
    const { run, events, state } = await bench.run('', { plan: { from: plan } })
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(state.plan).toEqual(plan)
    expect(events[0]).toMatchObject({ type: 'run-start', planFrom: 'the application', prompt: 'Say hello' })
    expect((await (await bench.host.changes(run.id)).review()).map((item) => item.path)).toEqual([
      'hello.txt',
    ])
    expect(model.asked.filter(isPlanning)).toEqual([])
  })
})

describe('a plan that is asked about', () => {
  it('is carried out as the person changed it, and a no without a word ends the run as denied [S1.11 A.11]', async () => {
    await using model = await scripted((asked, done) => {
      if (isPlanning(asked)) return submit
      return done === 0 ? call('write_file', { path: 'mine.txt', content: 'mine' }) : { text: 'done' }
    })
    const bench = await openBench(model)
    const mine = Plan.parse({
      goal: 'Say it my way',
      steps: [{ id: 'mine', title: 'Write mine.txt', instructions: 'Write mine to mine.txt.' }],
    })
    const answered = async (answer: Parameters<Run['answer']>[1]) => {
      const run = await bench.start('Say hello', {
        plan: { approve: true },
        approvals: { interactive: true },
      })
      const finished = finish(run)
      for await (const item of run.watch()) {
        if (item.source !== 'host' || item.event.type !== 'approval-request') continue
        expect(Plan.parse(JSON.parse(item.event.request.arguments))).toEqual(plan)
        expect(await run.answer(item.event.request.approvalId, answer)).toMatchObject({ taken: true })
      }
      return await finished
    }
    const edited = await answered({ decision: 'allow', scope: 'once', plan: mine })
    expect(edited.state.end).toMatchObject({ outcome: 'completed' })
    expect(edited.state.plan).toEqual(mine)
    expect(edited.events).toContainEqual(
      expect.objectContaining({ type: 'approval-decision', by: 'person', plan: mine }),
    )
    expect((await (await bench.host.changes(edited.run.id)).review()).map((item) => item.path)).toEqual([
      'mine.txt',
    ])
    const denied = await answered({ decision: 'deny', scope: 'once' })
    expect(denied.state.end).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(denied.events.map(({ type }) => type)).not.toContain('step-start')
  })
})

describe('an agent at work', () => {
  it('gets a message, holds before its next turn, continues when asked, and is cancelled in good order [A.08 S1.03]', async () => {
    await using model = await scripted((asked, done) => {
      if (isPlanning(asked)) return submit
      return done === 0
        ? call('run_bash', { command: 'echo one > one.txt; until [ -e go ]; do sleep 0.1; done' })
        : call('run_bash', { command: 'echo two > two.txt; sleep 300' }, 'call00002')
    })
    const bench = await openBench(model)
    const run = await bench.start('Say hello')
    const finished = finish(run)
    await sees(run, 'tool-start')
    await run.steer('Use the formal form.')
    await run.pause()
    // Its first call ends only now, so that there is a turn to hold before.
    await inVm(bench, run, 'touch /mnt/workspace/go')
    await sees(run, 'pause-start')
    const before = model.asked.length
    await sleep(1_500)
    expect(model.asked).toHaveLength(before)
    expect(run.state.paused).toBe(true)
    await run.resume()
    await sees(run, 'steer-seen')
    await expect.poll(() => model.asked.length, { timeout: 20_000 }).toBe(before + 1)
    const heard = model.asked.at(-1)?.messages.filter(({ role }) => role === 'user')
    expect(JSON.stringify(heard)).toContain('Use the formal form.')
    await expect.poll(() => Object.keys(run.state.openCalls), { timeout: 20_000 }).toEqual(['call00002'])
    await run.cancel()
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'cancelled' })
    const types = events.map(({ type }) => type)
    const story = [
      'steer-request',
      'pause-request',
      'pause-start',
      'resume-request',
      'pause-end',
      'cancel-request',
    ]
    expect(types.filter((type) => story.includes(type))).toEqual(story)
    expect(events).toContainEqual(expect.objectContaining({ type: 'tool-end', callId: 'call00002' }))
    expect((await (await bench.host.changes(run.id)).review()).map((item) => item.path)).toContain('one.txt')
    expect(await findVms(bench.home)).toEqual([])
    await expect(run.steer('late')).rejects.toThrow('ended')
  })

  it('that holds for long has its VM saved, hears what was said meanwhile when it continues, and finishes [A.08 V.04]', async () => {
    await using model = await scripted((asked, done) => {
      if (isPlanning(asked)) return submit
      return done === 0 ? call('write_file', { path: 'hello.txt', content: 'hello' }) : { text: 'done' }
    })
    const bench = await openBench(model)
    const vm = { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 300 }
    const run = await bench.start('Say hello', { vm })
    const finished = finish(run)
    await run.pause()
    await sees(run, 'vm-sleep')
    await run.steer('Be brief.')
    expect(await findVms(bench.home)).toEqual([])
    await run.resume()
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const types = events.map(({ type }) => type)
    expect(types.filter((type) => type === 'vm-sleep' || type === 'vm-wake')).toEqual(['vm-sleep', 'vm-wake'])
    expect(JSON.stringify(model.asked.map(({ messages }) => messages))).toContain('Be brief.')
  })

  it('that holds in a saved VM is cancelled in good order: it wakes, ends once, and leaves nothing [A.08 V.04 S1.03]', async () => {
    await using model = await scripted((asked) => (isPlanning(asked) ? submit : { text: 'done' }))
    const bench = await openBench(model)
    const vm = { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 300 }
    const run = await bench.start('Say hello', { vm })
    const finished = finish(run)
    await run.pause()
    await sees(run, 'vm-sleep')
    await run.cancel()
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'cancelled', reason: 'cancelled' })
    const types = events.map(({ type }) => type)
    expect(types.filter((type) => type === 'run-end')).toHaveLength(1)
    expect(types).toContain('vm-wake')
    expect(types).toContain('changes-ready')
    expect(await findVms(bench.home)).toEqual([])
  })
})
