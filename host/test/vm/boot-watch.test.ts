import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type BootOutcome, READY_MARKER, watchBoot } from '../../vm/boot-watch.ts'
import type { QemuExit } from '../../vm/qemu/qemu-process.ts'
import { VmConsole } from '../../vm/qemu/vm-console.ts'

/** What a watch makes of these bytes on the console, after which QEMU ends. */
async function watch(...chunks: (string | Uint8Array)[]) {
  const stream = new PassThrough()
  const { promise: exited, resolve: exit } = Promise.withResolvers<QemuExit>()
  const boot = watchBoot({ console: new VmConsole(stream), exited }, READY_MARKER)
  for (const chunk of chunks) stream.write(chunk)
  await new Promise((resolve) => setImmediate(resolve))
  exit({ code: 0, signal: null })
  return { outcome: await boot.outcome, phase: boot.phase(), spoke: boot.firstOutputAt() !== undefined }
}

describe('watchBoot', () => {
  it("finds readiness and the guest's uptime, also behind noise of the kernel [V.01]", async () => {
    expect(
      await watch(
        '[ 1.0] noise\r\n',
        'caisson: initramfs uptime=1.00\r\n',
        '[ 2.0] caisson: init ready upt',
        'ime=2.50\r\n',
      ),
    ).toEqual({
      outcome: { kind: 'ready', uptimeMs: 2500 },
      phase: 'init',
      spoke: true,
    })
    expect((await watch('caisson: init ready\n')).outcome).toEqual({ kind: 'ready', uptimeMs: null })
  })

  it("takes the guest's word for where it failed only as a plain word [V.01]", async () => {
    expect((await watch('caisson: ERROR phase=initramfs expected=drive-root\n')).outcome).toEqual({
      kind: 'guest-error',
      guestPhase: 'initramfs',
    })
    expect((await watch('caisson: ERROR phase=\u001b[31m red\n')).outcome).toEqual({
      kind: 'guest-error',
      guestPhase: undefined,
    })
  })

  it('continues when only the agent failed, which init starts again', async () => {
    const lines = ['caisson: ERROR phase=agent it ended\n', 'caisson: init ready uptime=3\n']
    expect((await watch(...lines)).outcome).toEqual({ kind: 'ready', uptimeMs: 3000 })
  })

  it('blames the kernel for a silence, and init once user space spoke [V.01]', async () => {
    const exited: BootOutcome = { kind: 'exited', exit: { code: 0, signal: null } }
    expect(await watch()).toEqual({ outcome: exited, phase: 'kernel', spoke: false })
    expect(await watch('Kernel panic\n')).toMatchObject({ outcome: exited, phase: 'kernel', spoke: true })
    expect(await watch('caisson: initramfs uptime=1\n')).toMatchObject({ outcome: exited, phase: 'init' })
  })

  it('makes one outcome of any bytes', async () => {
    const text = fc.constantFrom(
      'caisson:',
      ' init ready',
      ' ERROR',
      ' phase=',
      'x',
      '\n',
      '\r',
      ' uptime=',
      '9e9',
      '1.5',
    )
    const chunk = fc.oneof(text, fc.uint8Array({ maxLength: 50 }))
    await fc.assert(
      fc.asyncProperty(fc.array(chunk, { maxLength: 20 }), async (chunks) => {
        const { outcome } = await watch(...chunks)
        if (outcome.kind === 'ready') expect(Number.isSafeInteger(outcome.uptimeMs ?? 0)).toBe(true)
        if (outcome.kind === 'guest-error') expect(outcome.guestPhase ?? 'none').toMatch(/^[a-z_-]{1,20}$/)
      }),
      { seed: 5, numRuns: 200 },
    )
  })
})
