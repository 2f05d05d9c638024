// The templates of this user: one folder for each kind of VM in the cache, made on first use by one process while others
// wait, checked at each use, replaced when damaged, and removed when old or too many. What could not be made is
// remembered, so that not every start tries again.

import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { takeBuildLock } from '../image/build-lock.ts'
import type { Machine } from './accelerator.ts'
import { WORKSPACE_DRIVE_BYTES } from './drives.ts'
import { TEMPLATE_EPOCH_MS } from './fresh.ts'
import { stampFile } from './programs.ts'
import {
  lastUse,
  openTemplate,
  type Template,
  TemplateError,
  type TemplateKind,
  takeTemplate,
} from './template.ts'
import type { Vm } from './vm.ts'
import { VmError } from './vm-error.ts'
import { resolveSize } from './vm-options.ts'
import type { StartVmOptions } from './vm-plan.ts'

/** Raise it when a template of an earlier version of this code must not be used any more. */
const FORMAT = 1
/** Best first. */
const KINDS: readonly TemplateKind[] = ['mapped', 'plain']
const DAY_MS = 24 * 60 * 60 * 1000
/** How long a failure is believed; the user may have mended the machine. */
const FAILURE_LIFETIME_MS = DAY_MS
const KEPT_COUNT = 6
const KEPT_MS = 14 * DAY_MS

const failureSchema = z.strictObject({
  reasons: z.partialRecord(z.enum(['mapped', 'plain']), z.string().max(2_000)),
})

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

export interface TemplateInfo {
  readonly name: string
  readonly directory: string
  /** Bytes that it takes on the disk. */
  readonly bytes: number
  readonly usedAtMs: number
  /** Undefined when it is damaged or of another version. */
  readonly record?: Template['record']
}

export class TemplateStore {
  readonly #directory: string

  /** @param cache the cache folder, which exists */
  constructor(cache: string) {
    this.#directory = join(cache, 'templates')
  }

  /** The template for such a VM, made when there is none. @throws the signal's reason */
  async obtain(options: StartVmOptions, machine: Machine, deps: TemplateDeps): Promise<Obtained> {
    const name = await templateName(options, machine)
    const found = await this.#open(name)
    if (found !== undefined) return { ok: true, template: found }
    const failed = await this.#readFailures(name)
    const kind = KINDS.find((each) => failed[each] === undefined)
    if (kind === undefined) return { ok: false, reason: Object.values(failed).join('; ') }
    return await this.#make(name, kind, options, deps)
  }

  /** The template did not serve: it is removed, and with `forGood` its kind is not tried again for a day. */
  async reject({ directory, record }: Template, reason: string, forGood: boolean): Promise<void> {
    const name = directory.slice(this.#directory.length + 1)
    if (forGood) await this.#noteFailure(name, record.kind, reason)
    await this.remove(name)
  }

  /** What there is, last used first. */
  async list(): Promise<TemplateInfo[]> {
    const entries = await readdir(this.#directory, { withFileTypes: true }).catch(() => [])
    const names = entries.filter((entry) => entry.isDirectory() && isName(entry.name))
    const infos = await Promise.all(names.map(({ name }) => this.#describe(name)))
    return infos.sort((one, other) => other.usedAtMs - one.usedAtMs)
  }

  /** What could not be made here, by the name of its kind of VM: for `doctor`. */
  async failures(): Promise<Record<string, string>> {
    const names = (await readdir(this.#directory).catch(() => [])).filter((name) => name.endsWith('.failed'))
    const found = await Promise.all(
      names.map(async (name) => {
        const reasons = await this.#readFailures(name.slice(0, -'.failed'.length))
        return [name.slice(0, 12), Object.values(reasons).join('; ')] as const
      }),
    )
    return Object.fromEntries(found.filter(([, reason]) => reason !== ''))
  }

  /** Removes templates unused for two weeks and all but the last six used; VMs that run from one go on. */
  async prune(keepCount = KEPT_COUNT, keepMs = KEPT_MS): Promise<TemplateInfo[]> {
    const infos = await this.list()
    const old = infos.filter(({ usedAtMs }, index) => index >= keepCount || Date.now() - usedAtMs > keepMs)
    for (const { name } of old) await this.remove(name)
    return old
  }

  /** Gone at once for whoever looks it up. */
  async remove(name: string): Promise<void> {
    const aside = await mkdtemp(join(this.#directory, '.removed-'))
    await rename(join(this.#directory, name), join(aside, name)).catch(() => undefined)
    await rm(aside, { recursive: true, force: true })
  }

  async #make(
    name: string,
    kind: TemplateKind,
    options: StartVmOptions,
    { warmUp, onProgress }: TemplateDeps,
  ): Promise<Obtained> {
    const { signal } = options
    await mkdir(this.#directory, { recursive: true, mode: 0o700 })
    await using _lock = await takeBuildLock(join(this.#directory, `${name}.lock`), {
      ...(signal ? { signal } : {}),
      onWait: (pid) => onProgress?.(`template: process ${pid} is making it`),
    })
    const other = await this.#open(name)
    if (other !== undefined) return { ok: true, template: other }
    await this.#sweep()
    onProgress?.('template: boot a VM and warm it up, once')
    const draft = await mkdtemp(join(this.#directory, `.${name}-`))
    try {
      await takeTemplate({ start: options, kind, directory: draft, warmUp })
      await rename(draft, join(this.#directory, name))
    } catch (error) {
      signal?.throwIfAborted()
      // A machine that is short of something may have it later.
      if (error instanceof VmError && isPassing(error)) throw error
      const reason = error instanceof Error ? error.message : String(error)
      await this.#noteFailure(name, kind, reason)
      return { ok: false, reason }
    } finally {
      await rm(draft, { recursive: true, force: true })
    }
    await this.prune()
    const made = await this.#open(name)
    return made === undefined
      ? { ok: false, reason: 'the template was damaged while it was made' }
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
    const template = await openTemplate(directory).catch(() => undefined)
    const files = await readdir(directory).catch(() => [])
    const sizes = files.map((file) =>
      stat(join(directory, file)).then(
        ({ blocks }) => blocks * 512,
        () => 0,
      ),
    )
    const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
    const record = template === undefined ? {} : { record: template.record }
    return { name, directory, bytes, usedAtMs: await lastUse(directory), ...record }
  }

  /** Drafts and removals of processes that were killed; the lock is ours, so nobody else is at work on a draft of ours. */
  async #sweep(): Promise<void> {
    for (const name of await readdir(this.#directory)) {
      if (!name.startsWith('.')) continue
      const path = join(this.#directory, name)
      const age = Date.now() - (await stat(path).catch(() => ({ mtimeMs: Date.now() }))).mtimeMs
      if (age > DAY_MS / 24) await rm(path, { recursive: true, force: true })
    }
  }

  async #readFailures(name: string): Promise<Partial<Record<TemplateKind, string>>> {
    const file = join(this.#directory, `${name}.failed`)
    const { mtimeMs } = await stat(file).catch(() => ({ mtimeMs: 0 }))
    if (Date.now() - mtimeMs > FAILURE_LIFETIME_MS) return {}
    const text = await readFile(file, 'utf8').catch(() => '{}')
    const parsed = failureSchema.safeParse(safeJson(text))
    return parsed.success ? parsed.data.reasons : {}
  }

  async #noteFailure(name: string, kind: TemplateKind, reason: string): Promise<void> {
    const reasons = { ...(await this.#readFailures(name)), [kind]: reason.slice(0, 2_000) }
    const file = join(this.#directory, `${name}.failed`)
    await writeFile(file, `${JSON.stringify({ reasons })}\n`, { mode: 0o600 })
  }
}

/** Names everything whose change makes another template: 32 hex digits. */
export async function templateName(options: StartVmOptions, machine: Machine): Promise<string> {
  const { image } = options
  const files = 'disk' in image ? [image.disk] : [image.kernel, image.initramfs, image.root, image.agentDisk]
  const facts = [
    [FORMAT, WORKSPACE_DRIVE_BYTES, TEMPLATE_EPOCH_MS],
    await Promise.all(files.map(stampFile)),
    [machine.qemuVersion, await stampFile(machine.qemu), cpus()[0]?.model],
    [options.accelerator === 'auto' ? undefined : options.accelerator, machine.accelerator, machine.seccomp],
    [resolveSize(options), options.guestOptions ?? {}],
  ]
  return createHash('sha256').update(JSON.stringify(facts)).digest('hex').slice(0, 32)
}

function isName(name: string): boolean {
  return /^[0-9a-f]{32}$/.test(name)
}

function isPassing({ code }: VmError): boolean {
  return ['cancelled', 'memory_short', 'disk_short', 'bad_option', 'image_unreadable'].includes(code)
}

function safeJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
