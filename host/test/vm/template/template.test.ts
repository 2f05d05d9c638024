import { chmod, mkdir, mkdtemp, readdir, readFile, rm, truncate, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { takeLock } from '../../../locks/file-lock.ts'
import { resolveFolders } from '../../../state/folders.ts'
import type { Machine } from '../../../vm/qemu/accelerator.ts'
import { lastUse, openTemplate, TemplateError } from '../../../vm/template/template.ts'
import { TemplateFailures } from '../../../vm/template/template-failures.ts'
import { templateName } from '../../../vm/template/template-name.ts'
import { findOldTemplates, TemplateStore } from '../../../vm/template/template-store.ts'
import { writeTemplate } from '../../support/templates.ts'

const DAY_MS = 24 * 60 * 60 * 1000
const nameOf = (digit: string) => digit.repeat(32)
const [first, second] = [nameOf('a'), nameOf('b')]

let cache: string
beforeEach(async () => {
  cache = await mkdtemp(join(tmpdir(), 'caisson-cache-'))
})
afterEach(() => rm(cache, { recursive: true, force: true }))

const place = (name: string, ...file: string[]) => join(cache, 'templates', name, ...file)

async function setUse(name: string, agoMs: number): Promise<void> {
  const then = new Date(Date.now() - agoMs)
  await utimes(place(name, 'used'), then, then)
}

describe('a template on the disk', () => {
  it('is used when every file is as it was taken [V.01]', async () => {
    const template = await writeTemplate(cache, first)
    expect(await openTemplate(template.directory)).toEqual(template)
    expect(await openTemplate(place(second))).toBeUndefined()
  })

  it.each([
    ['a state that was cut short', () => truncate(place(first, 'state'), 3), 'state was changed'],
    ['a memory file that was cut short', () => truncate(place(first, 'memory'), 4096), 'memory was changed'],
    ['a memory file that is too long', () => truncate(place(first, 'memory'), 2 ** 21), 'memory was changed'],
    ['one byte of memory changed', () => changeByte(place(first, 'memory')), 'memory was changed'],
    ['one byte of the state changed', () => changeByte(place(first, 'state')), 'state was changed'],
    ['a disk that was written to', () => changeByte(place(first, 'scratch.raw')), 'scratch was changed'],
    [
      'an overlay that was written to',
      () => changeByte(place(first, 'overlay.qcow2')),
      'overlay was changed',
    ],
    ['another mode of a file', () => chmod(place(first, 'state'), 0o644), 'state was changed'],
    ['a file that is gone', () => rm(place(first, 'memory')), 'a file is missing'],
    ['a record that is no JSON', () => writeFile(place(first, 'template.json'), '{"version":1,'), 'damaged'],
    ['a record of bytes', () => writeFile(place(first, 'template.json'), Buffer.alloc(99, 255)), 'damaged'],
    [
      'a record of another version',
      () => writeFile(place(first, 'template.json'), '{"version":2}'),
      'version',
    ],
  ])('is refused with %s, and what it was is said [V.01]', async (_, damage, said) => {
    await writeTemplate(cache, first)
    await damage()
    const opened = openTemplate(place(first))
    await expect(opened).rejects.toBeInstanceOf(TemplateError)
    await expect(opened).rejects.toThrow(said)
  })

  it('is refused when the state is another of the same size and times [V.01]', async () => {
    const { record } = await writeTemplate(cache, first)
    const forged = { ...record, stateSha256: '0'.repeat(64) }
    await writeFile(place(first, 'template.json'), JSON.stringify(forged))
    await expect(openTemplate(place(first))).rejects.toThrow('not the one that was written')
  })
})

async function changeByte(file: string): Promise<void> {
  const bytes = await readFile(file)
  bytes[7] = (bytes[7] ?? 0) ^ 1
  await writeFile(file, bytes)
}

describe('the templates of a user', () => {
  it('are listed, the last used first, and a damaged one with what is wrong [V.01]', async () => {
    await writeTemplate(cache, first)
    await writeTemplate(cache, second, 'plain')
    await writeTemplate(cache, nameOf('c'))
    await setUse(second, 2 * DAY_MS)
    await setUse(nameOf('c'), DAY_MS)
    await changeByte(place(second, 'state'))
    await mkdir(join(cache, 'templates', '.half-made'))
    const infos = await new TemplateStore(cache).list()
    expect(infos.map(({ name }) => name)).toEqual([first, nameOf('c'), second])
    expect(infos[0]).toMatchObject({ record: { kind: 'mapped', qemuVersion: '7.2.22' } })
    expect(infos[0]?.bytes).toBeGreaterThan(0)
    expect(infos[0]?.problem).toBeUndefined()
    expect(infos[2]).toMatchObject({ problem: expect.stringContaining('state was changed') })
    expect(infos[2]?.record).toBeUndefined()
  })

  it('are old after a week without use, or when those used later take 4 GiB with them [V.01]', () => {
    const now = 100 * DAY_MS
    const used = (name: string, days: number, gib: number) => ({
      name,
      usedAtMs: now - days * DAY_MS,
      bytes: gib * 1024 ** 3,
    })
    expect([...findOldTemplates([used('a', 8, 0.1), used('b', 6, 0.1)], now)]).toEqual(['a'])
    const many = [used('third', 3, 1.5), used('first', 1, 2), used('small', 4, 0.5), used('second', 2, 1)]
    expect([...findOldTemplates(many, now)]).toEqual(['third'])
    expect([...findOldTemplates([used('huge', 1, 9), used('other', 2, 0.1)], now)]).toEqual(['other'])
  })

  it('are removed when old and stay when not, and all go when asked to, with the notes of failures [V.01]', async () => {
    await writeTemplate(cache, first)
    await writeTemplate(cache, second)
    await setUse(second, 8 * DAY_MS)
    const notes = new TemplateFailures(join(cache, 'templates'))
    await notes.note(first, 'mapped', 'a reason')
    const store = new TemplateStore(cache)
    expect((await store.prune()).map(({ name }) => name)).toEqual([second])
    expect((await readdir(join(cache, 'templates'))).toSorted()).toEqual([first, `${first}.failed`])
    expect((await store.prune(true)).map(({ name }) => name)).toEqual([first])
    expect(await readdir(join(cache, 'templates'))).toEqual([])
  })

  it('leave out the one that a VM rejects, but not another that was put in its place meanwhile [V.01]', async () => {
    const store = new TemplateStore(cache)
    const rejected = await writeTemplate(cache, first)
    await rm(place(first), { recursive: true })
    const fresh = await writeTemplate(cache, first)
    await store.reject(rejected, 'it did not serve', false)
    expect(await openTemplate(place(first))).toEqual(fresh)
    await store.reject(fresh, 'it did not serve', true)
    expect(await openTemplate(place(first))).toBeUndefined()
    expect(await store.failures()).toMatchObject([{ name: first, reasons: { mapped: 'it did not serve' } }])
  })

  it('have no last use when nothing tells [V.01]', async () => {
    await writeTemplate(cache, first)
    await rm(place(first, 'used'))
    expect(await lastUse(place(first))).toBe(0)
  })
})

describe('a template that another process makes without an end', () => {
  it('is not waited for beyond a bound, and once alone: the VM boots, and the reason names the process [V.01 R.05]', async () => {
    const disk = join(cache, 'disk')
    await writeFile(disk, '')
    const machine: Machine = {
      qemu: disk,
      qemuVersion: '7.2.0',
      seccomp: true,
      accelerator: 'tcg',
      trials: [],
      confinement: { launchers: [{ kind: 'bare' }] },
    }
    const folders = resolveFolders({ CAISSON_HOME: cache, CAISSON_CACHE: cache })
    const options = { image: { disk, format: 'raw' as const }, folders }
    await mkdir(place(''), { recursive: true })
    const lock = await takeLock(place(`${await templateName(options, machine)}.lock`))
    const told: string[] = []
    const deps = { warmUp: async () => undefined, onProgress: (text: string) => void told.push(text) }
    const waitMs = 2_000
    const obtain = () => new TemplateStore(cache, waitMs).obtain(options, machine, deps)
    const reason = expect.stringContaining(`process ${process.pid} holds the lock`)
    expect(await obtain()).toEqual({ ok: false, reason })
    expect(told).toEqual([`template: process ${process.pid} is making it`])
    const startedAt = performance.now()
    expect(await obtain()).toEqual({ ok: false, reason })
    expect(performance.now() - startedAt).toBeLessThan(waitMs)
    await lock[Symbol.asyncDispose]()
  })
})

describe('what could not be made', () => {
  it('is remembered by kind, longer after each failure and at most for a day, and a damaged note is none [V.01]', async () => {
    const folder = join(cache, 'templates')
    await mkdir(folder)
    const notes = new TemplateFailures(folder)
    const isKnownAfter = async (minutes: number) => {
      const then = new Date(Date.now() - minutes * 60_000)
      await utimes(join(folder, `${first}.failed`), then, then)
      return (await notes.list()).length === 1
    }
    await notes.note(first, 'mapped', 'no mapping')
    await notes.note(first, 'plain', 'x'.repeat(9_000))
    const { mapped, plain } = await notes.read(first)
    expect([mapped, plain?.length]).toEqual(['no mapping', 2_000])
    expect([await isKnownAfter(9), await isKnownAfter(11)]).toEqual([true, false])
    expect(await notes.read(first)).toEqual({})
    await notes.note(first, 'mapped', 'still none')
    expect(await notes.read(first)).toEqual({ mapped: 'still none' })
    expect([await isKnownAfter(39), await isKnownAfter(41)]).toEqual([true, false])
    for (let times = 0; times < 5; times += 1) await notes.note(first, 'mapped', 'never')
    expect([await isKnownAfter(1_439), await isKnownAfter(1_441)]).toEqual([true, false])
    await writeFile(join(folder, `${second}.failed`), '{"reasons":{"other":1}}')
    expect(await notes.list()).toEqual([])
    await notes.forget(false)
    expect(await readdir(folder)).toEqual([])
  })

  it('costs nothing when the note cannot be written [V.01]', async () => {
    const notes = new TemplateFailures(join(cache, 'no such folder'))
    await notes.note(first, 'mapped', 'a reason')
    expect(await notes.read(first)).toEqual({})
  })
})
