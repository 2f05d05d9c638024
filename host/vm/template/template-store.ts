// The user's templates: one cache folder for each kind of VM. One process makes a template on first use while others
// wait. Each use checks it; damaged, old and excess templates are removed. Failures are remembered, so that not every
// start retries.

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
/** Longer than making one takes on a slow machine: after this, the lock's holder must be stopped. */
const WAIT_MS = 120_000
/** Locks on which this process timed out; later starts do not wait for them again. */
const stuck = new Set<string>()
/** Limit for old templates: see {@link findOldTemplates}. */
const KEPT_BYTES = 4 * 1024 ** 3
const KEPT_MS = 7 * 24 * HOUR_MS
/** Maximum disk usage of a typical VM's template, with a margin for other writers. */
export const TEMPLATE_DISK_BYTES = 700 * 1024 * 1024
/** With less free space than this, the disk caused the failure. */
const FULL_DISK_BYTES = 32 * 1024 * 1024
/** Names the process that works on a draft. */
const MAKER = 'maker.json'

export interface TemplateDeps {
  /** Brings a new VM's agent to the state in which every VM starts. */
  readonly warmUp: (vm: Vm) => Promise<void>
  /** Receives a line for people when a template is made or waited for. */
  readonly onProgress?: (text: string) => void
}

export type Obtained =
  | { readonly ok: true; readonly template: Template }
  /** Why there is none, in the host's words. */
  | { readonly ok: false; readonly reason: string }

type Made =
  | Extract<Obtained, { ok: true }>
  /** `remembered`: another kind may work; otherwise none works now. */
  | { readonly ok: false; readonly reason: string; readonly remembered: boolean }

/** A template as the library shows it. */
export interface VmTemplate {
  readonly name: string
  readonly directory: string
  /** Bytes used on disk. */
  readonly bytes: number
  /** Times in ms since 1970. */
  readonly usedAtMs: number
  readonly isIntact: boolean
  /** Why the next use makes it again; null where it can be used. */
  readonly problem: string | null
  /** The others are null where it is damaged or of another version. `mapped`: VMs share its memory; `plain`: each loads it. */
  readonly kind: 'mapped' | 'plain' | null
  readonly createdAtMs: number | null
  readonly tookMs: number | null
  readonly qemuVersion: string | null
  readonly memoryBytes: number | null
}

export function toVmTemplate({
  name,
  directory,
  bytes,
  usedAtMs,
  record,
  problem,
}: TemplateInfo): VmTemplate {
  return {
    ...{ name, directory, bytes, usedAtMs, isIntact: record !== undefined, problem: problem ?? null },
    kind: record?.kind ?? null,
    createdAtMs: record?.createdAtMs ?? null,
    tookMs: record?.tookMs ?? null,
    qemuVersion: record?.qemuVersion ?? null,
    memoryBytes: record?.memoryBytes ?? null,
  }
}

export interface TemplateInfo {
  readonly name: string
  readonly directory: string
  /** Bytes used on disk. */
  readonly bytes: number
  readonly usedAtMs: number
  /** Undefined if it is damaged or of another version. */
  readonly record?: TemplateRecord
  /** Why it cannot be used; undefined if it can. */
  readonly problem?: string
}

/**
 * Names of templates unused for a week, and of those that, with all used later, exceed 4 GiB. The most recently used
 * one expires only by age.
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

/** Whether every better kind is known to fail. */
function isBest({ record }: Template, failed: FailureReasons): boolean {
  return KINDS.slice(0, KINDS.indexOf(record.kind)).every((kind) => failed[kind] !== undefined)
}

export class TemplateStore {
  readonly #cache: string
  readonly #directory: string
  readonly #failures: TemplateFailures

  readonly #waitMs: number

  /**
   * @param cache the existing cache folder
   * @param waitMs how long to wait for another process's template before a cold boot
   */
  constructor(cache: string, waitMs = WAIT_MS) {
    this.#cache = cache
    this.#waitMs = waitMs
    this.#directory = join(cache, 'templates')
    this.#failures = new TemplateFailures(this.#directory)
  }

  /**
   * The template for such a VM, made if missing: the best kind that is not known to fail.
   * @throws the signal's reason, and VmError when a boot would not succeed either
   */
  async obtain(options: StartVmOptions, machine: Machine, deps: TemplateDeps): Promise<Obtained> {
    const name = await templateName(options, machine)
    const found = await this.#open(name)
    const failed = { ...(await this.#failures.read(name)) }
    if (found !== undefined) {
      if (isBest(found, failed) || !(await this.#hasDiskSpace())) return { ok: true, template: found }
      // The cause that prevented a better kind may be gone.
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

  /** Removes a template that failed; with `forGood`, its kind is not retried for some time. */
  async reject(template: Template, reason: string, forGood: boolean): Promise<void> {
    const { directory, record } = template
    const name = directory.slice(this.#directory.length + 1)
    if (forGood) await this.#failures.note(name, record.kind, reason)
    // Another process may have replaced it with a good one.
    const present = await openTemplate(directory).catch(() => template)
    if (present !== undefined && isSameTemplate(present, template)) await this.remove(name)
  }

  /** All templates, most recently used first. */
  async list(): Promise<TemplateInfo[]> {
    const entries = await readdir(this.#directory, { withFileTypes: true }).catch(() => [])
    const names = entries.filter((entry) => entry.isDirectory() && isTemplateName(entry.name))
    const infos = await Promise.all(names.map(({ name }) => this.#describe(name)))
    return infos.sort((one, other) => other.usedAtMs - one.usedAtMs)
  }

  /** Failures to make or use a template, latest first. */
  async failures(): Promise<TemplateFailure[]> {
    return await this.#failures.list()
  }

  /** Removes old templates, or all, with their failures; VMs that use one continue. @returns the removed templates */
  async prune(all = false): Promise<TemplateInfo[]> {
    const infos = await this.list()
    const old = findOldTemplates(infos, Date.now())
    const going = infos.filter(({ name }) => all || old.has(name))
    for (const { name } of going) await this.remove(name)
    await this.#failures.forget(all)
    return going
  }

  /** Renames first, so that no lookup finds it. */
  async remove(name: string): Promise<void> {
    const place = join(this.#directory, name)
    // A full disk has no space for another folder.
    const aside = await mkdtemp(join(this.#directory, '.removed-')).catch(() => undefined)
    if (aside !== undefined) await rename(place, join(aside, name)).catch(() => undefined)
    await rm(aside ?? place, { recursive: true, force: true })
  }

  async #hasDiskSpace(): Promise<boolean> {
    return (await readFreeBytes(this.#cache).catch(() => 0)) >= TEMPLATE_DISK_BYTES
  }

  /** Returns failures of the machine or the kind; throws those that would also fail a boot. */
  async #make(name: string, kind: TemplateKind, options: StartVmOptions, deps: TemplateDeps): Promise<Made> {
    try {
      await mkdir(this.#directory, { recursive: true, mode: 0o700 })
      await using _lock = await this.#lock(name, options, deps)
      const other = await this.#open(name)
      if (other !== undefined) return { ok: true, template: other }
      await this.#sweep()
      const free = await readFreeBytes(this.#cache)
      if (free < TEMPLATE_DISK_BYTES) return notRemembered(describeShortDisk(this.#cache, free))
      deps.onProgress?.('template (made once, 1 of 3): booting a VM')
      return await this.#makeLocked(name, kind, options, deps)
    } catch (error) {
      options.signal?.throwIfAborted()
      // A temporary shortage may be over later.
      if (error instanceof VmError && isPassing(error)) throw error
      return notRemembered(errorMessage(error))
    }
  }

  /** @throws {LockHeldError} when another process takes too long to make it: a boot is faster */
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
    deps: TemplateDeps,
  ): Promise<Made> {
    const draft = await mkdtemp(join(this.#directory, `.${name}-`))
    try {
      await writeFile(join(draft, MAKER), JSON.stringify(await ownIdentity()), { mode: 0o600 })
      await takeTemplate({ start, kind, directory: draft, warmUp: warmingUp(deps) })
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

  /** The intact template; removes a damaged one. */
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

  /** Removes drafts and removed templates of killed processes. */
  async #sweep(): Promise<void> {
    for (const name of await readdir(this.#directory)) {
      const path = join(this.#directory, name)
      if (name.startsWith('.') && (await isAbandoned(path))) await rm(path, { recursive: true, force: true })
    }
  }
}

/** The warm-up with its progress. */
function warmingUp({ warmUp, onProgress }: TemplateDeps): TemplateDeps['warmUp'] {
  return async (vm) => {
    onProgress?.('template (2 of 3): warming up its agent')
    await warmUp(vm)
    onProgress?.('template (3 of 3): saving the VM')
  }
}

/** Its maker is dead; without a named maker, it is an hour old. */
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
