import { describe, expect, it } from 'vitest'
import { CaissonError, type ErrorCode } from '#specs/errors.ts'
import type { RunReason } from '#specs/protocol/error.ts'
import { exitCodeOf, exitCodeOfEnd } from '../../cli/exit-codes.ts'
import { runEnding } from '../../runs/ending.ts'
import { VmError } from '../../vm/vm-error.ts'

const vmError = new VmError({
  kind: 'guest_failed',
  phase: 'kernel',
  expected: 'the guest to boot',
  seen: 'a panic',
  remedy: 'Verify the image.',
  stderrTail: 'qemu: warning\n',
  consoleTail: `${'old line\n'.repeat(100)}Kernel panic - not syncing\n`,
})

describe('the end of a run', () => {
  it('tells of a VM that failed its phase, the remedy, and the last words of QEMU and guest [V.01]', () => {
    const ending = runEnding(vmError)
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'environment' })
    for (const words of ['phase kernel', 'Verify the image.', 'qemu: warning', 'Kernel panic'])
      expect(ending.message).toContain(words)
    expect(ending.message.split('\n').length).toBeLessThan(30)
  })

  it('has an exit code by its reason, and an error has the same [H.01 E.02]', () => {
    const codes: ErrorCode[] = [
      'denied',
      'cancelled',
      'no_space',
      'state_corrupted',
      'vm_failed',
      'agent_lost',
    ]
    for (const code of codes) {
      const error = new CaissonError(code, 'it failed')
      expect(exitCodeOfEnd(runEnding(error)), code).toBe(exitCodeOf(error))
    }
    const byReason = (reason: RunReason) => exitCodeOfEnd({ reason })
    expect([byReason('denied'), byReason('cancelled')]).toEqual([3, 3])
    expect([byReason('environment'), byReason('model_unreachable'), byReason('model_refused')]).toEqual([
      4, 4, 4,
    ])
    expect([byReason('step_failed'), byReason('vm_lost'), byReason('internal')]).toEqual([1, 1, 1])
    expect(exitCodeOf(vmError)).toBe(4)
    expect(exitCodeOfEnd(null)).toBe(1)
  })
})
