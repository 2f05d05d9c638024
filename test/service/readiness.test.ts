// Whether the service says that VMs can be started, on machines where they cannot be.
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { Finding } from '../../host/index.ts'
import { Latest } from '../../host/service/latest.ts'
import { Readiness } from '../../host/service/readiness.ts'
import { placeOfRuns } from '../../host/test/support/changed-run.ts'
import { readMetrics, seriesValue } from './prometheus-text.ts'
import { serveHost } from './support.ts'

/** A QEMU that does not start is the first on PATH. Call it from within a test. */
async function withBrokenQemu(): Promise<void> {
  const before = process.env.PATH
  onTestFinished(() => {
    process.env.PATH = before
  })
  const folder = await temporaryFolder('programs')
  await writeFile(path.join(folder, 'qemu-system-x86_64'), '#!/bin/sh\nexit 1\n', { mode: 0o755 })
  process.env.PATH = `${folder}:${before}`
}

const found = (id: string, status: Finding['status'], more: Partial<Finding> = {}): Finding => ({
  ...{ id, title: id, status, seen: '/home/ada/private', remedy: 'look at /home/ada' },
  ...more,
})

function readinessOf(...findings: readonly Finding[]) {
  const logged: unknown[] = []
  const doctor = async () => findings
  return { logged, readiness: new Readiness({ doctor, log: (line) => logged.push(line) }) }
}

describe('GET /readyz', () => {
  it('is 503 with each reason and what to do while no VM can be started, and the service lives [H.02, V.02]', async () => {
    await withBrokenQemu()
    const { host } = await placeOfRuns({})
    const { send, client, logged } = await serveHost(host)
    const anonymous = { headers: { authorization: undefined } }
    const { status, headers, json, text } = await send('GET', '/readyz', anonymous)
    expect([status, headers['content-type']]).toEqual([
      503,
      expect.stringMatching(/^application\/problem\+json/),
    ])
    expect(json).toMatchObject({
      code: 'not_ready',
      detail: expect.stringContaining('no VM can be started: QEMU cannot be run; install qemu-system-x86'),
      remedy: expect.stringContaining('caisson doctor'),
      errors: [
        { field: 'qemu', message: expect.stringContaining('install qemu-system-x86') },
        { field: 'image', message: expect.stringContaining('caisson image build') },
      ],
    })
    // Anybody may ask: what was seen is in the log alone, once.
    expect(text).not.toContain(host.folders.home)
    await send('GET', '/readyz', anonymous)
    expect(logged.filter(({ message }) => message === 'no VM can be started')).toMatchObject([
      { level: 'warn', checks: [{ check: 'qemu', seen: expect.any(String) }, { check: 'image' }] },
    ])
    const health = await send('GET', '/healthz', anonymous)
    expect([health.status, health.json]).toEqual([200, { status: 'running', version: '0.0.0-test' }])
    await expect(client.call('ready', {})).rejects.toMatchObject({ status: 503, code: 'not_ready' })
    const scraped = readMetrics(await client.call('metrics', {}))
    expect(seriesValue(scraped, 'caisson_ready')).toBe(0)
  })

  it('counts what keeps a VM from starting, and no mere warning [H.02, V.02]', async () => {
    const fine = readinessOf(found('accelerator', 'warn'), found('image', 'ok'), found('programs', 'warn'))
    await expect(fine.readiness.require()).resolves.toBeUndefined()
    expect([await fine.readiness.failed(), fine.logged]).toEqual([[], []])
    const wrong = [
      found('image', 'warn'),
      found('confinement', 'warn', { isUnsafe: true }),
      found('disk-state', 'fail'),
      found('programs', 'fail'),
    ]
    for (const finding of wrong) {
      const refusal = await readinessOf(found('image', 'ok'), finding)
        .readiness.require()
        .catch((error: unknown) => error)
      expect(refusal).toMatchObject({ problem: { status: 503, errors: [{ field: finding.id }] } })
    }
  })

  it('has fixed words for every check that can fail, without what was seen [H.02, V.02]', async () => {
    const { host } = await placeOfRuns({})
    const ids = (await host.doctor()).map(({ id }) => id)
    expect(ids).toContain('disk-cache')
    // These never fail: they warn, or are about the model alone.
    const warns = new Set(['accelerator', 'template', 'key'])
    for (const id of [...ids.filter((known) => !warns.has(known)), 'a-later-check']) {
      const refusal = (await readinessOf(found(id, 'fail'))
        .readiness.require()
        .catch((error: unknown) => error)) as { problem: { errors: { message: string }[] } }
      const text = JSON.stringify(refusal.problem)
      expect(text).not.toContain('ada')
      expect([id, text.includes('a check of this machine failed')]).toEqual([id, id === 'a-later-check'])
    }
  })

  it('is 503 while the checks themselves fail, and the log says why [H.02]', async () => {
    const logged: unknown[] = []
    const readiness = new Readiness({
      doctor: () => Promise.reject(new Error('too many open files')),
      log: (line) => logged.push(line),
    })
    await expect(readiness.require()).rejects.toMatchObject({ problem: { status: 503, code: 'not_ready' } })
    expect(await readiness.failed()).toBeNull()
    expect(logged).toMatchObject([{ level: 'warn', cause: 'too many open files' }])
  })
})

describe('what was read last', () => {
  it('is read once at a time and again when it is old; a read that hangs holds nobody [H.02]', async () => {
    let now = 0
    const reads: PromiseWithResolvers<number>[] = []
    const read = () => {
      const next = Promise.withResolvers<number>()
      reads.push(next)
      return next.promise
    }
    const latest = new Latest(read, { keepMs: 10, waitMs: 20, now: () => now })
    const both = [latest.get(), latest.get()]
    reads[0]?.resolve(1)
    expect(await Promise.all(both)).toEqual([
      { ok: true, value: 1 },
      { ok: true, value: 1 },
    ])
    now = 9
    expect(await latest.get()).toEqual({ ok: true, value: 1 })
    expect(reads).toHaveLength(1)
    now = 10
    expect(await latest.get()).toMatchObject({ ok: false })
    expect(await latest.get()).toMatchObject({ ok: false })
    expect(reads).toHaveLength(2)
    reads[1]?.reject(new Error('broken'))
    expect(await latest.get()).toMatchObject({ ok: false, why: { message: 'broken' } })
    expect(reads).toHaveLength(2)
  })
})
