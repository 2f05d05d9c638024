import { expect, it } from 'vitest'
import { PortClosedError, ReseedError } from '../../vm/reseed.ts'
import { describeFailure, describeOutcome, isLaunchFailure } from '../../vm/start-failure.ts'

/** The error of a QEMU that ended in this way before its monitor spoke. */
function endedEarly(code: number | null, signal: string | null) {
  const qemu = { stderrTail: () => '', console: { text: () => '' } } as never
  return describeOutcome({ kind: 'exited', exit: { code, signal } }, 'qmp', qemu)
}

it('the machine is examined again where QEMU failed by itself, not where somebody killed it [V.01]', () => {
  expect(isLaunchFailure(endedEarly(1, null))).toBe(true)
  // By the sandbox of system calls, which is this machine's.
  expect(isLaunchFailure(endedEarly(null, 'SIGSYS'))).toBe(true)
  for (const signal of ['SIGKILL', 'SIGTERM']) {
    const error = endedEarly(null, signal)
    expect(isLaunchFailure(error)).toBe(false)
    expect(error.message).toContain(signal)
  }
})

it('a QEMU that is killed while the guest gets its random bytes is named as killed, not its guest [V.01 R.01]', () => {
  const failure = {
    phase: 'fresh',
    watch: {} as never,
    qemu: { stderrTail: () => '', console: { text: () => '' } } as never,
    exit: { code: null, signal: 'SIGKILL' },
    deadlineMs: 1,
  } as const
  const killed = describeFailure(new PortClosedError('the port closed'), failure)
  expect(killed).toMatchObject({ kind: 'qemu_failed', signal: 'SIGKILL' })
  expect(describeFailure(new ReseedError('no answer'), failure)).toMatchObject({ kind: 'guest_failed' })
})
