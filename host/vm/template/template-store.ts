// The templates of this user: one folder for each kind of VM in the cache, made on first use by one process while others
// wait, checked at each use, replaced when damaged, and removed when old or too many. What could not be made is
// remembered, so that not every start tries again.

import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { errorMessage } from '#specs/errors.ts'
import { parseJson } from '../../files/json.ts'
import { type FileLock, LockHeldError, takeLock } from '../../locks/file-lock.ts'
import { judgeProcess, ownIdentity, ProcessIdentity } from '../../processes/process-identity.ts'
import type { Machine } from '../qemu/accelerator.ts'
import type { Vm } from '../vm.ts'
import type { StartVmOptions } from '../vm-command.ts'
import { VmError } from '../vm-error.ts'
import { readFreeBytes } from '../vm-options.ts'
import {
  isSameTemplate,
  lastUse,
  openTemplate,
  type Template,
  TemplateError,
  type TemplateKind,
  type TemplateRecord,
  takeTemplate,
} from './template.ts'
import {
  describeReasons,
  type FailureReasons,
  type TemplateFailure,
  TemplateFailures,
} from './template-failures.ts'
import { isTemplateName, templateName } from './template-name.ts'

/** Best first. */
const KINDS: readonly TemplateKind[] = ['mapped', 'plain']
const HOUR_MS = 60 * 60 * 1000
/** Longer than making one takes on a slow machine: whoever holds the lock by then was stopped. */
const WAIT_MS = 120_000
/** Locks that this process waited for in vain: no start after that waits for them as long again. */
const stuck = new Set<string>()
/** The rule for what is old: see {@link findOldTemplates}. */
const KEPT_BYTES = 4 * 1024 ** 3
const KEPT_MS = 7 * 24 * HOUR_MS
/** What a template takes at most of a usual VM, and some room for whoever else writes there. */
export const TEMPLATE_DISK_BYTES = 700 * 1024 * 1024
/** With less than this left, a failure was the disk's. */
const FULL_DISK_BYTES = 32 * 1024 * 1024
/** Names the process that works on a draft. */
const MAKER = 'maker.json'

export interface TemplateDeps {
  /** Brings the agent of a new VM to where every VM shall begin. */
  readonly warmUp: (vm: Vm) => Promise<void>
  /** Told when a template is made or waited for; a line for a person. */
  readonly onProgress?: (text: string) => void
}

export type Obtained =
  | { readonly ok: true; readonly template: Template }
  /** Why there is none, in words of the host. */
  | { readonly ok: false; readonly reason: string }

type Made =
  | Extract<Obtained, { ok: true }>
  /** `remembered`: the other kind may do; otherwise nothing does now. */
  | { readonly ok: false; readonly reason: string; readonly remembered: boolean }

export interface TemplateInfo {
  readonly name: string
  readonly directory: string
  /** Bytes that it takes on the disk. */
  readonly bytes: number
  readonly usedAtMs: number
  /** Undefined when it is damaged or of another version. */
  readonly record?: TemplateRecord
  /** Why it would not be used; undefined when it would. */
  readonly problem?: string
}

/**
 * Names of those that nobody used for a week, and of those that with all used after them take more than 4 GiB on the
 * disk. The last one used is old by its age alone.
 */
export function findOldTemplates(
  templates: readonly { readonly name: string; readonly usedAtMs: number; readonly bytes: number }[],
  nowMs: number,
): ReadonlySet<string> {
  const old = new Set<string>()
  let keptBytes = 0
  for (const { name, usedAtMs, bytes } of templates.toSorted((one, other) => other.usedAtMs - one.usedAtMs)) {
    const isTooMuch = keptBytes > 0 && keptBytes + bytes > KEPT_BYTES
    if (isTooMuch || nowMs - usedAtMs > KEPT_MS) old.add(name)
    else keptBytes += bytes
  }
  return old
}

/** Whether each better kind is known to fail. */
function isBest({ record }: Template, failed: FailureReasons): boolean {
  return KINDS.slice(0, KINDS.indexOf(record.kind)).every((kind) => failed[kind] !== undefined)
}

export class TemplateStore {
  readonly #cache: string
  readonly #directory: string
  readonly #failures: TemplateFailures

  readonly #waitMs: number

  /**
   * @param cache the cache folder, which exists
   * @param waitMs how long to wait for a template that another process makes, before a boot without one
   */
  constructor(cache: string, waitMs = WAIT_MS) {
    this.#cache = cache
    this.#waitMs = waitMs
    this.#directory = join(cache, 'templates')
    this.#failures = new TemplateFailures(this.#directory)
  }

  /**
   * The template for such a VM, made when there is none: of the best kind that is not known to fail here.
   * @throws the signal's reason, and VmError when a boot would not succeed either
   */
  async obtain(options: StartVmOptions, machine: Machine, deps: TemplateDeps): Promise<Obtained> {
    const name = await templateName(options, machine)
    const found = await this.#open(name)
    const failed = { ...(await this.#failures.read(name)) }
    if (found !== undefined) {
      if (isBest(found, failed) || !(await this.#hasRoom())) return { ok: true, template: found }
      // What kept a better kind from being made may have passed.
      await this.reject(found, 'a better kind is tried again', false)
    }
    for (const kind of KINDS) {
      if (failed[kind] !== undefined) continue
      const made = await this.#make(name, kind, options, deps)
      if (made.ok) return made
      if (!made.remembered) return { ok: false, reason: made.reason }
      failed[kind] = made.reason
    }
    return { ok: false, reason: describeReasons(failed) }
  }

  /** The template did not serve: it is removed, and with `forGood` its kind is left for some time. */
  async reject(template: Template, reason: string, forGood: boolean): Promise<void> {
    const { directory, record } = template
    const name = directory.slice(this.#directory.length + 1)
    if (forGood) await this.#failures.note(name, record.kind, reason)
    // Another process may have put a good one in its place.
    const present = await openTemplate(directory).catch(() => template)
    if (present !== undefined && isSameTemplate(present, template)) await this.remove(name)
  }

  /** What there is, last used first. */
  async list(): Promise<TemplateInfo[]> {
    const entries = await readdir(this.#directory, { withFileTypes: true }).catch(() => [])
    const names = entries.filter((entry) => entry.isDirectory() && isTemplateName(entry.name))
    const infos = await Promise.all(names.map(({ name }) => this.#describe(name)))
    return infos.sort((one, other) => other.usedAtMs - one.usedAtMs)
  }

  /** What could not be made or used here, the latest first. */
  async failures(): Promise<TemplateFailure[]> {
    return await this.#failures.list()
  }

  /** Removes the old ones, or all, with the notes of failures; VMs that run from one go on. @returns what was removed */
  async prune(all = false): Promise<TemplateInfo[]> {
    const infos = await this.list()
    const old = findOldTemplates(infos, Date.now())
    const going = infos.filter(({ name }) => all || old.has(name))
    for (const { name } of going) await this.remove(name)
    await this.#failures.forget(all)
    return going
  }

  /** Gone at once for whoever looks it up. */
  async remove(name: string): Promise<void> {
    const place = join(this.#directory, name)
    // A full disk has no room for another folder.
    const aside = await mkdtemp(join(this.#directory, '.removed-')).catch(() => undefined)
    if (aside !== undefined) await rename(place, join(aside, name)).catch(() => undefined)
    await rm(aside ?? place, { recursive: true, force: true })
  }

  async #hasRoom(): Promise<boolean> {
    return (await readFreeBytes(this.#cache).catch(() => 0)) >= TEMPLATE_DISK_BYTES
  }

  /** A failure of the machine or of the kind is a value; what would keep a boot from succeeding as well is thrown. */
  async #make(name: string, kind: TemplateKind, options: StartVmOptions, deps: TemplateDeps): Promise<Made> {
    try {
      await mkdir(this.#directory, { recursive: true, mode: 0o700 })
      await using _lock = await this.#lock(name, options, deps)
      const other = await this.#open(name)
      if (other !== undefined) return { ok: true, template: other }
      await this.#sweep()
      const free = await readFreeBytes(this.#cache)
      if (free < TEMPLATE_DISK_BYTES) return notRemembered(describeShortDisk(this.#cache, free))
      deps.onProgress?.('template: boot a VM and warm it up, once')
      return await this.#makeLocked(name, kind, options, deps)
    } catch (error) {
      options.signal?.throwIfAborted()
      // A machine that is short of something may have it later.
      if (error instanceof VmError && isPassing(error)) throw error
      return notRemembered(errorMessage(error))
    }
  }

  /** @throws {LockHeldError} when another process takes too long to make it: a boot is quicker */
  async #lock(name: string, { signal }: StartVmOptions, { onProgress }: TemplateDeps): Promise<FileLock> {
    const file = join(this.#directory, `${name}.lock`)
    try {
      const lock = await takeLock(file, {
        ...(stuck.has(file) ? {} : { waitMs: this.#waitMs }),
        ...(signal ? { signal } : {}),
        onWait: (holder) => onProgress?.(`template: ${holder} is making it`),
      })
      stuck.delete(file)
      return lock
    } catch (error) {
      if (error instanceof LockHeldError) stuck.add(file)
      throw error
    }
  }

  async #makeLocked(
    name: string,
    kind: TemplateKind,
    start: StartVmOptions,
    { warmUp }: TemplateDeps,
  ): Promise<Made> {
    const draft = await mkdtemp(join(this.#directory, `.${name}-`))
    try {
      await writeFile(join(draft, MAKER), JSON.stringify(await ownIdentity()), { mode: 0o600 })
      await takeTemplate({ start, kind, directory: draft, warmUp })
      await rm(join(draft, MAKER))
      await rename(draft, join(this.#directory, name))
    } catch (error) {
      start.signal?.throwIfAborted()
      if (error instanceof VmError && isPassing(error)) throw error
      const free = await readFreeBytes(this.#cache)
      if (free < FULL_DISK_BYTES) return notRemembered(describeShortDisk(this.#cache, free))
      const reason = errorMessage(error)
      await this.#failures.note(name, kind, reason)
      return { ok: false, reason, remembered: true }
    } finally {
      await rm(draft, { recursive: true, force: true })
    }
    await this.prune()
    const made = await this.#open(name)
    return made === undefined
      ? notRemembered('the template was damaged while it was made')
      : { ok: true, template: made }
  }

  /** The intact template; a damaged one is removed. */
  async #open(name: string): Promise<Template | undefined> {
    try {
      return await openTemplate(join(this.#directory, name))
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error
      await this.remove(name)
      return undefined
    }
  }

  async #describe(name: string): Promise<TemplateInfo> {
    const directory = join(this.#directory, name)
    const opened = await openTemplate(directory).catch((error: unknown) => errorMessage(error))
    const files = await readdir(directory).catch(() => [])
    const sizes = files.map((file) =>
      stat(join(directory, file)).then(
        ({ blocks }) => blocks * 512,
        () => 0,
      ),
    )
    const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
    const found = { name, directory, bytes, usedAtMs: await lastUse(directory) }
    if (typeof opened === 'object') return { ...found, record: opened.record }
    return { ...found, problem: opened?.replace(`${directory}: `, '') ?? 'it has no record' }
  }

  /** Drafts and removals of processes that were killed. */
  async #sweep(): Promise<void> {
    for (const name of await readdir(this.#directory)) {
      const path = join(this.#directory, name)
      if (name.startsWith('.') && (await isAbandoned(path))) await rm(path, { recursive: true, force: true })
    }
  }
}

/** Its maker is dead; where none is named, it is an hour old. */
async function isAbandoned(draft: string): Promise<boolean> {
  const text = await readFile(join(draft, MAKER), 'utf8').catch(() => '')
  const maker = ProcessIdentity.safeParse(parseJson(text))
  if (maker.success) return (await judgeProcess(maker.data)) === 'dead'
  const { mtimeMs } = await stat(draft).catch(() => ({ mtimeMs: Date.now() }))
  return Date.now() - mtimeMs > HOUR_MS
}

function notRemembered(reason: string): Made {
  return { ok: false, reason, remembered: false }
}

function describeShortDisk(cache: string, free: number): string {
  const [needed, seen] = [TEMPLATE_DISK_BYTES, free].map((bytes) => Math.floor(bytes / 1024 / 1024))
  return `a template needs ${needed} MiB free in ${cache}, and there are ${seen} MiB`
}

function isPassing({ kind }: VmError): boolean {
  return ['cancelled', 'memory_short', 'disk_short', 'bad_option', 'image_unreadable'].includes(kind)
}
