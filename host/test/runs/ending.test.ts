import { describe, expect, it } from 'vitest'
import { exitCodeOf, exitCodeOfEnd } from '../../cli/exit-codes.ts'
import { endingOf, RunFailure } from '../../runs/ending.ts'
import { VmError } from '../../vm/vm-error.ts'

const vmError = new VmError({
  code: 'guest_failed',
  phase: 'kernel',
  expected: 'the guest to boot',
  seen: 'a panic',
  remedy: 'Verify the image.',
  stderrTail: 'qemu: warning\n',
  consoleTail: `${'old line\n'.repeat(100)}Kernel panic - not syncing\n`,
})

describe('the end of a run', () => {
  it('tells of a VM that failed its phase, the remedy, and the last words of QEMU and guest [V.01]', () => {
    const ending = endingOf(vmError)
    expect(ending).toMatchObject({ outcome: 'failed', reason: 'environment' })
    for (const words of ['phase kernel', 'Verify the image.', 'qemu: warning', 'Kernel panic'])
      expect(ending.message).toContain(words)
    expect(ending.message.split('\n').length).toBeLessThan(30)
  })

  it('has an exit code by its reason, as an error before it has [H.01]', () => {
    const codeOf = (reason: ConstructorParameters<typeof RunFailure>[0]) => {
      const error = new RunFailure(reason, '')
      expect(exitCodeOfEnd(endingOf(error))).toBe(exitCodeOf(error))
      return exitCodeOf(error)
    }
    expect([codeOf('denied'), codeOf('cancelled')]).toEqual([3, 3])
    expect([codeOf('environment'), codeOf('model_unreachable'), codeOf('model_refused')]).toEqual([4, 4, 4])
    expect([codeOf('step_failed'), codeOf('vm_lost'), codeOf('internal')]).toEqual([1, 1, 1])
    expect(exitCodeOf(vmError)).toBe(4)
    expect(exitCodeOfEnd(null)).toBe(1)
  })
})
