import { tmpdir } from 'node:os'
import { describe, expect, it } from 'vitest'
import { VmError } from '../../vm/vm-error.ts'
import { checkResources, DEFAULT_MEMORY_BYTES, resolveSize, type VmSize } from '../../vm/vm-options.ts'

const MIB = 1024 * 1024

function failureOf(work: () => unknown): VmError {
  try {
    work()
  } catch (error) {
    if (error instanceof VmError) return error
    throw error
  }
  throw new Error('expected a VmError')
}

describe('resolveSize', () => {
  it('has defaults for everything [V.06]', () => {
    const size = resolveSize({})
    expect(size.memoryBytes).toBe(DEFAULT_MEMORY_BYTES)
    expect(size.cpus).toBeGreaterThanOrEqual(1)
    expect(size.diskBytes).toBe(8192 * MIB)
  })

  it.each<[Partial<VmSize>, string]>([
    [{ memoryBytes: 64 * MIB }, '256 to'],
    [{ memoryBytes: 2 ** 50 }, '256 to'],
    [{ memoryBytes: 300 * MIB + 1 }, 'whole MiB'],
    [{ memoryBytes: Number.NaN }, 'memory of'],
    [{ cpus: 0 }, '1 to 64 CPUs'],
    [{ cpus: 1.5 }, '1 to 64 CPUs'],
    [{ diskBytes: MIB }, 'disk of 64 to'],
  ])('refuses %o and says what would do [V.06]', (requested, expected) => {
    const error = failureOf(() => resolveSize(requested))
    expect(error).toMatchObject({ kind: 'bad_option', phase: 'prepare' })
    expect(error.message).toContain(expected)
  })
})

describe('checkResources', () => {
  it('passes where memory and disk suffice', async () => {
    await expect(checkResources(resolveSize({ memoryBytes: 256 * MIB }), tmpdir())).resolves.toBeUndefined()
  })

  it('names folder, need and remedy when the disk is full [V.06]', async () => {
    // A file system without free blocks: /proc reports none.
    const error = await checkResources(resolveSize({ memoryBytes: 256 * MIB }), '/proc').catch(
      (e: unknown) => e,
    )
    expect(error).toMatchObject({ kind: 'disk_short', phase: 'prepare' })
    expect(String(error)).toContain('/proc')
    expect(String(error)).toContain('CAISSON_HOME')
  })
})
