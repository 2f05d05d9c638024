// The host's link against the agent's over ports in memory: nothing lost, nothing doubled, nothing pending.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodePreamble, sessionRequest } from '#specs/node/preamble.ts'
import { agentPing, forwardOpen, taskCancel, workspaceOpen } from '#specs/protocol/methods.ts'
import { completion, note, runId, task, until, wait } from '../../host/test/support/run-values.ts'
import { createWorld } from './support.ts'

const approval = {
  approvalId: 'a-1',
  runId,
  agentPath: 'root',
  stepId: 's',
  callId: 'c',
  tool: 'delete_file',
  arguments: '{}',
  preview: '',
}
const never = new AbortController().signal

describe('a session', () => {
  it('comes up whoever is there first, host or agent [C.03]', async () => {
    await using world = createWorld()
    await wait(20)
    world.startGuest()
    const info = await world.link.ready({ timeoutMs: 5_000 })
    expect(info).toMatchObject({ ok: true, value: { tools: ['read_file'], restarts: 0 } })
    expect(await world.link.request(agentPing, { count: 7 })).toEqual({ ok: true, value: { count: 7 } })
  })

  it('comes up behind bytes of an earlier one [C.03]', async () => {
    await using world = createWorld()
    world.rpc.injectToHost(Buffer.from('\0\0\0\x10{"jsonrpc":"2.0"'))
    world.http.injectToHost(Buffer.alloc(500, 0xff))
    world.startGuest()
    expect((await world.link.ready({ timeoutMs: 5_000 })).ok).toBe(true)
  })

  it('gives way to a new one when the host asks, and the agent is the same [C.03]', async () => {
    await using world = createWorld()
    world.startGuest()
    await world.link.ready()
    for (const wanted of [2, 3, 4]) {
      world.link.restartSession('again')
      await until(() => world.seen.sessions.length === wanted, `session ${wanted}`)
    }
    expect(world.seen.sessions.map((session) => session.resumed)).toEqual([false, true, true, true])
    expect(world.seen.ends.every((end) => end.reason === 'restarted')).toBe(true)
  })

  it('fails what it has pending at its end, and sends idempotent requests again [C.03]', async () => {
    await using world = createWorld()
    let opened = 0
    world.startGuest({
      handlers: {
        'forward/open': () => new Promise(() => {}),
        'workspace/open': () => {
          opened++
          return opened === 1 ? new Promise(() => {}) : Promise.resolve({ ok: true, value: {} })
        },
      },
    })
    await world.link.ready()
    const forward = world.link.request(forwardOpen, { forwardId: '0'.repeat(32), port: 80 })
    const workspace = world.link.request(workspaceOpen, {})
    await until(() => opened === 1, 'the first request')
    world.link.restartSession('again')
    expect(await forward).toMatchObject({ ok: false, error: { code: 'session_ended' } })
    expect(await workspace).toEqual({ ok: true, value: {} })
  })

  it('continues after a host that was stopped reads all requests of that time at once [C.03]', async () => {
    const guestTimings = { silenceBeats: 0.005, requestIntervalMs: 1, requestMaxMs: 1 }
    await using world = createWorld({ timings: { flapMaxCount: 3, heartbeatIntervalMs: 60_000 } })
    world.startGuest({ timings: guestTimings })
    await world.link.ready()
    // What a stopped host does: it reads nothing. The guest ends its session and asks for another again and again.
    world.rpc.host.pause()
    const requestBytes = encodePreamble(sessionRequest).length
    await until(() => world.rpc.host.readableLength > 100 * requestBytes, 'a hundred requests')
    world.rpc.host.resume()
    await until(() => world.seen.sessions.length > 1, 'the next session')
    expect(world.seen.sessions.map(({ resumed }) => resumed).slice(0, 2)).toEqual([false, true])
    expect(await world.link.request(agentPing, { count: 1 })).toEqual({ ok: true, value: { count: 1 } })
    expect(world.seen.lost).toEqual([])
  })

  it('is asked for less and less often while the host is silent, and the agent learns it [R.02, C.03]', async () => {
    const quiet: boolean[] = []
    const guestTimings = { silenceBeats: 4, requestIntervalMs: 10, requestMaxMs: 400, quietBeats: 3 }
    await using world = createWorld()
    world.startGuest({ timings: guestTimings, onQuiet: (is) => quiet.push(is) })
    await world.link.ready()
    await wait(500)
    expect(quiet).toEqual([])
    world.rpc.host.pause()
    // A host that reads nothing still pings; one that is stopped does not.
    world.link.setFrozen(true)
    await wait(1_400)
    expect(quiet).toEqual([true])
    // 10, 20, 40, 80, 160, 320, 400 ms apart; each millisecond without the back-off.
    const asked = world.rpc.host.readableLength / encodePreamble(sessionRequest).length
    expect(asked).toBeGreaterThan(2)
    expect(asked).toBeLessThan(12)
    world.link.setFrozen(false)
    world.rpc.host.resume()
    await until(() => world.seen.sessions.length === 2, 'the next session')
    await until(() => quiet.length === 2, 'the end of the silence')
    expect(quiet).toEqual([true, false])
  })

  it('outlasts a VM that stands still for longer than every time limit, with the requests and streams in it [R.02]', async () => {
    let thaw = (): void => undefined
    const running = { promise: Promise.resolve() }
    await using world = createWorld({
      probe: () => running.promise,
      timings: {
        heartbeatIntervalMs: 100,
        heartbeatTimeoutMs: 200,
        startTimeoutMs: 200,
        reconnectTimeoutMs: 300,
        flapMaxCount: 1,
      },
    })
    const gate = Promise.withResolvers<{ ok: true; value: Record<string, never> }>()
    world.startGuest({ handlers: { 'workspace/open': () => gate.promise } })
    await world.link.ready()
    const pending = world.link.request(workspaceOpen, {})
    for (let round = 0; round < 3; round++) {
      const stopped = Promise.withResolvers<void>()
      running.promise = stopped.promise
      thaw = stopped.resolve
      // Nothing that the guest says is heard; its QEMU does not move the bytes.
      world.rpc.host.pause()
      await wait(1_200)
      thaw()
      running.promise = Promise.resolve()
      world.rpc.host.resume()
      expect(await world.link.request(agentPing, { count: round })).toMatchObject({ ok: true })
    }
    gate.resolve({ ok: true, value: {} })
    expect(await pending).toEqual({ ok: true, value: {} })
    expect(world.seen.sessions).toHaveLength(1)
    expect(world.seen.ends).toEqual([])
  })

  it('continues wherever the requests of one silence are cut, and however they are spread [C.03]', async () => {
    const spread = fc.array(fc.tuple(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 0, max: 4 })), {
      minLength: 3,
      maxLength: 8,
    })
    const sizes = fc.array(fc.integer({ min: 1, max: 90 }), { maxLength: 3 })
    await fc.assert(
      fc.asyncProperty(spread, sizes, async (bursts, chunkSizes) => {
        await using world = createWorld({
          timings: { flapMaxCount: 2, heartbeatIntervalMs: 60_000 },
          faults: { chunkSizes },
        })
        const processId = 'ab'.repeat(16)
        const guest = world.startGuest({ processId })
        await world.link.ready()
        guest.close()
        for (const [count, pauseMs] of bursts) {
          world.rpc.injectToHost(
            Buffer.concat(Array.from({ length: count }, () => encodePreamble(sessionRequest))),
          )
          await wait(pauseMs)
        }
        world.startGuest({ processId })
        await until(() => world.seen.sessions.length > 1, 'the next session')
        expect(world.seen.sessions[1]).toMatchObject({ resumed: true })
        expect(await world.link.request(agentPing, { count: 2 })).toMatchObject({ ok: true })
      }),
      { seed: 13, numRuns: 25 },
    )
  })

  it('is taken down before its VM is saved, and continues behind other ports [V.04]', async () => {
    await using world = createWorld()
    world.startGuest()
    await world.link.ready()
    await world.link.park()
    expect(world.seen.ends.map(({ reason }) => reason)).toEqual(['parked'])
    // The guest asks for a host again and again meanwhile.
    await wait(100)
    expect(world.seen.sessions).toHaveLength(1)
    world.link.attachPorts(world.rpc.host, world.http.host)
    await until(() => world.seen.sessions.length === 2, 'the next session')
    expect(world.seen.sessions[1]).toMatchObject({ resumed: true })
  })

  it('is given up when a guest does not take it down before a save [V.04]', async () => {
    await using world = createWorld({ timings: { parkTimeoutMs: 50 } })
    const guest = world.startGuest()
    await world.link.ready()
    guest.close()
    world.rpc.openGuest().resume()
    await world.link.park()
    expect(world.seen.ends.length).toBeLessThanOrEqual(1)
    world.startGuest()
    world.link.attachPorts(world.rpc.host, world.http.host)
    await until(() => world.seen.sessions.length === 2, 'the next session')
  })

  it('ends when the agent does not answer its heartbeat [C.03]', async () => {
    await using world = createWorld({
      timings: { heartbeatIntervalMs: 100, heartbeatTimeoutMs: 100, reconnectTimeoutMs: 400 },
    })
    const guest = world.startGuest()
    await world.link.ready()
    guest.close()
    // Half open: the guest's side is held by someone who reads and says nothing.
    world.rpc.openGuest().resume()
    expect(await world.link.closed).toMatchObject({ reason: 'silent' })
    expect(world.seen.ends[0]?.reason).toBe('heartbeat_missed')
  })

  it('is not missed while the VM is paused [C.03]', async () => {
    await using world = createWorld({ timings: { heartbeatIntervalMs: 100, heartbeatTimeoutMs: 100 } })
    const guest = world.startGuest()
    await world.link.ready()
    world.link.setFrozen(true)
    guest.close()
    const silent = world.rpc.openGuest()
    silent.resume()
    await wait(500)
    expect(world.seen.ends).toEqual([])
  })

  it('ends the link when ports close, with everything that waits [C.03]', async () => {
    await using world = createWorld()
    world.startGuest({ handlers: { 'workspace/open': () => new Promise(() => {}) } })
    await world.link.ready()
    const pending = world.link.request(workspaceOpen, {})
    world.rpc.host.destroy()
    expect(await pending).toMatchObject({ ok: false, error: { code: 'closed' } })
    expect(await world.link.closed).toMatchObject({ reason: 'port_closed' })
  })

  it('never comes when no agent is there, and the link says so [C.03]', async () => {
    await using world = createWorld({ timings: { firstSessionTimeoutMs: 150 } })
    expect(await world.link.ready()).toMatchObject({ ok: false, error: { code: 'closed' } })
    expect(await world.link.closed).toMatchObject({ reason: 'silent' })
  })

  it('is waited for no longer than the deadline or the signal says [C.03]', async () => {
    await using world = createWorld()
    expect(await world.link.ready({ timeoutMs: 20 })).toMatchObject({
      ok: false,
      error: { code: 'timed_out' },
    })
    const controller = new AbortController()
    const waiting = world.link.request(taskCancel, { runId, reason: '' }, { signal: controller.signal })
    controller.abort()
    expect(await waiting).toMatchObject({ ok: false, error: { code: 'cancelled' } })
  })
})

describe('the events of a run', () => {
  it('arrive once and in order wherever one guest after the other is cut off [S1.10, C.03]', {
    timeout: 60_000,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 12_000 }),
        fc.array(fc.integer({ min: 1, max: 3_000 }), { minLength: 1, maxLength: 4 }),
        fc.array(fc.integer({ min: 0, max: 59 }), { maxLength: 3 }),
        async (cutAfterBytes, chunkSizes, restarts) => {
          await using world = createWorld({ faults: { chunkSizes } })
          const guest = world.startGuest({ cutAfterBytes })
          expect((await world.link.submitTask(task, { timeoutMs: 9_000 })).ok).toBe(true)
          const texts = Array.from({ length: 60 }, (_, index) => `${index} ${'x'.repeat(index * 4)}`)
          for (const [index, text] of texts.entries()) {
            if (restarts.includes(index)) world.link.restartSession('test')
            await guest.emitEvent(runId, 'root', note(text))
            if (index % 7 === 0) await wait(1)
          }
          expect((await guest.complete(completion)).ok).toBe(true)
          expect(world.seen.events).toEqual(texts)
          expect(world.seen.numbers).toEqual(texts.map((_, index) => index + 1))
          expect(world.seen.completions).toHaveLength(1)
          expect(world.seen.bugs).toEqual([])
          expect(world.seen.lost).toEqual([])
        },
      ),
      { seed: 5, numRuns: 40 },
    )
  })

  it('arrive once and in order at every single byte at which a short run is cut [R.02, C.03]', {
    timeout: 120_000,
  }, async () => {
    const texts = ['one', 'two', 'three']
    /** Whether the run was cut at all: behind its last byte there is nothing left to cut. */
    const cutAt = async (cutAfterBytes: number): Promise<boolean> => {
      await using world = createWorld()
      const guest = world.startGuest({ cutAfterBytes })
      expect((await world.link.submitTask(task, { timeoutMs: 60_000 })).ok).toBe(true)
      for (const text of texts) await guest.emitEvent(runId, 'root', note(text))
      expect((await guest.complete(completion)).ok).toBe(true)
      const { events, completions, bugs, lost } = world.seen
      expect({ cutAfterBytes, events, completions: completions.length, bugs, lost }).toEqual({
        cutAfterBytes,
        events: texts,
        completions: 1,
        bugs: [],
        lost: [],
      })
      return world.rpc.wasCut
    }
    const atOnce = 32
    let tried = 0
    for (let isCut = true; isCut; tried += atOnce) {
      const cuts = await Promise.all(Array.from({ length: atOnce }, (_, next) => cutAt(tried + next + 1)))
      isCut = cuts.some(Boolean)
    }
    expect(tried).toBeGreaterThan(800)
  })

  it('make the agent wait while the host is slow, instead of piling up [C.03]', async () => {
    const gate = Promise.withResolvers<void>()
    await using world = createWorld({ handlers: { onEvent: () => gate.promise } })
    const guest = world.startGuest()
    await world.link.submitTask(task)
    let emitted = 0
    const emitting = (async () => {
      for (let index = 0; index < 2_000; index++) {
        await guest.emitEvent(runId, 'root', note('x'))
        emitted++
      }
    })()
    await until(() => emitted >= 512, 'a full buffer')
    await wait(50)
    expect(emitted).toBe(512)
    gate.resolve()
    await emitting
    expect((await guest.complete(completion)).ok).toBe(true)
  })

  it('are shortened visibly when one would not fit a frame', async () => {
    const sizes: number[] = []
    await using world = createWorld({
      handlers: {
        onEvent: (_run, { event }) => {
          if (event.type === 'step-end') sizes.push(event.text.length)
        },
      },
    })
    const guest = world.startGuest()
    await world.link.submitTask(task)
    const text = '\u0001'.repeat(256 * 1024)
    await guest.emitEvent(runId, 'root', { type: 'step-end', stepId: 's', state: 'completed', text })
    expect((await guest.complete(completion)).ok).toBe(true)
    expect(sizes[0]).toBeLessThan(text.length)
    expect(sizes[0]).toBeGreaterThan(10_000)
  })

  it('end the link when the host cannot record them [C.03]', async () => {
    await using world = createWorld({
      handlers: {
        onEvent: () => {
          throw new Error('disk full')
        },
      },
    })
    const guest = world.startGuest()
    await world.link.submitTask(task)
    await guest.emitEvent(runId, 'root', note('x'))
    expect(await world.link.closed).toMatchObject({ reason: 'host_failed' })
  })
})

describe('deltas', () => {
  it('are put together and keep their order before later events [S1.10, C.03]', async () => {
    await using world = createWorld()
    const guest = world.startGuest()
    await world.link.submitTask(task)
    for (const [offset, text] of [
      [0, 'he'],
      [2, 'll'],
      [4, 'o'],
    ] as const)
      guest.emitDelta(runId, 'root', { type: 'text-delta', stepId: 's', turn: 1, offset, text })
    guest.emitDelta(runId, 'root', { type: 'reasoning-delta', stepId: 's', turn: 1, offset: 0, text: 'hm' })
    await until(() => world.seen.deltas.length === 2, 'the deltas')
    expect(world.seen.deltas).toEqual(['hello', 'hm'])
  })
})

describe('an approval', () => {
  it('is put to the host once and answered through later sessions [S1.11]', async () => {
    const answer = Promise.withResolvers<{ ok: true; value: { decision: 'deny'; hint: string } }>()
    let asked = 0
    await using world = createWorld({
      handlers: {
        requestApproval: () => {
          asked++
          return answer.promise
        },
      },
    })
    const guest = world.startGuest()
    await world.link.submitTask(task)
    const decision = guest.requestApproval(approval, never)
    await until(() => asked === 1, 'the question')
    for (let round = 0; round < 3; round++) {
      const sessions = world.seen.sessions.length
      world.link.restartSession('again')
      await until(() => world.seen.sessions.length > sessions, 'the next session')
    }
    answer.resolve({ ok: true, value: { decision: 'deny', hint: 'move it instead' } })
    expect(await decision).toEqual({ ok: true, value: { decision: 'deny', hint: 'move it instead' } })
    expect(asked).toBe(1)
  })

  it('is withdrawn when the agent gives up the call, not when a session ends [S1.11]', async () => {
    let signal: AbortSignal | null = null
    await using world = createWorld({
      handlers: {
        requestApproval: (_request, context) => {
          signal = context.signal
          return new Promise(() => {})
        },
      },
    })
    const guest = world.startGuest()
    await world.link.submitTask(task)
    const controller = new AbortController()
    const decision = guest.requestApproval(approval, controller.signal)
    await until(() => signal !== null, 'the question')
    world.link.restartSession('again')
    await until(() => world.seen.sessions.length === 2, 'the next session')
    await wait(20)
    expect((signal as AbortSignal | null)?.aborted).toBe(false)
    controller.abort()
    expect(await decision).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    await until(() => (signal as AbortSignal | null)?.aborted === true, 'the withdrawal')
    expect((signal as AbortSignal | null)?.reason).toBe('the step that asked has ended')
  })

  it('cannot be asked under an id that was used for another question [S1.11]', async () => {
    await using world = createWorld()
    const guest = world.startGuest()
    await world.link.submitTask(task)
    expect((await guest.requestApproval(approval, never)).ok).toBe(true)
    const other = await guest.requestApproval({ ...approval, arguments: '{"path":"/"}' }, never)
    expect(other).toMatchObject({ ok: false, error: { code: 'rejected', rpcCode: -32602 } })
    expect(world.seen.approvals).toEqual(['a-1'])
  })
})

describe('the end of a task', () => {
  it('is handled once though its answer is lost [S1.03, C.03]', async () => {
    const gate = Promise.withResolvers<void>()
    let handled = 0
    await using world = createWorld({
      handlers: {
        completeTask: async () => {
          handled++
          await gate.promise
          return { ok: true, value: {} }
        },
      },
    })
    const guest = world.startGuest()
    await world.link.submitTask(task)
    const completing = guest.complete(completion)
    await until(() => handled === 1, 'the completion')
    world.link.restartSession('again')
    await until(() => world.seen.sessions.length === 2, 'the next session')
    gate.resolve()
    expect(await completing).toEqual({ ok: true, value: undefined })
    expect(handled).toBe(1)
    expect(world.seen.lost).toEqual([])
    expect(guest.runId).toBeNull()
  })
})

describe('an agent that was replaced', () => {
  it('cannot continue with the run of the one before: the run is lost, the link is not [S1.01, C.03]', async () => {
    await using world = createWorld()
    world.startGuest()
    await world.link.submitTask(task)
    world.startGuest()
    await until(() => world.seen.lost.length === 1, 'the loss')
    const cancel = await world.link.request(taskCancel, { runId, reason: 'x' })
    expect(cancel).toMatchObject({ ok: false, error: { code: 'agent_lost' } })
    expect((await world.link.request(workspaceOpen, {})).ok).toBe(true)
    const next = { ...task, runId: `run-${'a'.repeat(20)}` }
    expect((await world.link.submitTask(next)).ok).toBe(true)
  })

  it('takes a task that the one before was never handed [C.03]', async () => {
    await using world = createWorld()
    world.startGuest()
    await world.link.ready()
    world.startGuest()
    await until(() => world.seen.sessions.length === 2, 'the next session')
    expect((await world.link.submitTask(task)).ok).toBe(true)
  })
})

describe('a run that the host has given up', () => {
  it('drains without reaching the host’s handlers', async () => {
    await using world = createWorld()
    const guest = world.startGuest()
    await world.link.submitTask(task)
    world.link.forgetRun()
    for (let index = 0; index < 600; index++) await guest.emitEvent(runId, 'root', note('late'))
    expect((await guest.complete(completion)).ok).toBe(true)
    expect(world.seen).toMatchObject({ events: [], completions: [], ends: [] })
  })
})
