// What a handler may do wrong on this side, and what of it the other side learns.
import { describe, expect, it } from 'vitest'
import { forwardOpen, workspaceCollect, workspaceOpen } from '#specs/protocol/methods.ts'
import { runId, until } from '../../host/test/support/run-values.ts'
import { createWorld } from './support.ts'

describe('a handler', () => {
  it('that throws becomes an internal error without a word of what it threw [C.02]', async () => {
    await using world = createWorld()
    world.startGuest({
      handlers: {
        'workspace/open': async () => {
          throw new Error('secret in /home/someone')
        },
      },
    })
    const answer = await world.link.request(workspaceOpen, {})
    expect(answer).toEqual({
      ok: false,
      error: { code: 'rejected', rpcCode: -32603, message: 'workspace/open failed inside its handler' },
    })
    expect(world.seen.ends).toEqual([])
  })

  it('whose result breaks the schema becomes an internal error too [C.02]', async () => {
    await using world = createWorld()
    world.startGuest({
      handlers: { 'workspace/collect': async () => ({ ok: true, value: { entries: -1, contentBytes: 0 } }) },
    })
    const answer = await world.link.request(workspaceCollect, { runId })
    expect(answer).toMatchObject({ ok: false, error: { code: 'rejected', rpcCode: -32603 } })
  })

  it('learns by its signal that the caller has cancelled or its deadline has passed', async () => {
    const signals: AbortSignal[] = []
    await using world = createWorld()
    world.startGuest({
      handlers: {
        'forward/open': (_params, { signal }) => {
          signals.push(signal)
          return new Promise(() => {})
        },
      },
    })
    const controller = new AbortController()
    const cancelled = world.link.request(
      forwardOpen,
      { forwardId: '0'.repeat(32), port: 80 },
      { signal: controller.signal },
    )
    await until(() => signals.length === 1, 'the request')
    controller.abort()
    expect(await cancelled).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    const late = await world.link.request(
      forwardOpen,
      { forwardId: '0'.repeat(32), port: 80 },
      { timeoutMs: 50 },
    )
    expect(late).toMatchObject({ ok: false, error: { code: 'timed_out' } })
    await until(() => signals.length === 2 && signals.every((signal) => signal.aborted), 'the signals')
  })
})

describe('a request', () => {
  it('with params that break the schema is not sent, and says which field [C.02]', async () => {
    await using world = createWorld()
    world.startGuest()
    const answer = await world.link.request(forwardOpen, { forwardId: '0'.repeat(32), port: -1 })
    expect(answer).toMatchObject({ ok: false, error: { code: 'bad_params' } })
    expect(answer.ok ? '' : answer.error.message).toContain('port')
  })
})
