import { expect, it } from 'vitest'
import { describeOutcome, isLaunchFailure } from '../../vm/start-failure.ts'

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
