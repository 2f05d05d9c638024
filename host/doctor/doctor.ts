// What of this machine Caisson needs, what was found, and what to do about the rest: data for the CLI to show.
// It changes nothing but what every start makes anyway (folders, remembered trials), and never reads a key's value
// further than to see that there is one.
import { totalmem } from 'node:os'
import path from 'node:path'
import { errorMessage, hasCode } from '#specs/errors.ts'
import { formatBytes, formatCount } from '../files/format.ts'
import { findImage, findRoot, type ImageOptions } from '../image/image.ts'
import { ImageError } from '../image/image-error.ts'
import { describeLeftOut, searchProgram } from '../processes/programs.ts'
import { checkFolder, type Folders, prepareFolders } from '../state/folders.ts'
import {
  acceleratorRemedy,
  describeTrials,
  type Machine,
  noAccelerator,
  probeMachine,
} from '../vm/qemu/accelerator.ts'
import { QEMU } from '../vm/qemu/qemu-programs.ts'
import { describeReasons, type TemplateFailure } from '../vm/template/template-failures.ts'
import { TEMPLATE_DISK_BYTES, type TemplateInfo, TemplateStore } from '../vm/template/template-store.ts'
import { VmError } from '../vm/vm-error.ts'
import {
  DEFAULT_DISK_BYTES,
  DEFAULT_MEMORY_BYTES,
  readFreeBytes,
  START_MEMORY_BYTES,
} from '../vm/vm-options.ts'
import { checkConfig, type Finding } from './inspect-config.ts'

export type { Finding } from './inspect-config.ts'

const MIB = 1024 * 1024
const GIB = 1024 * MIB
const MIN_NODE_MAJOR = 24
/** The version whose behavior was measured; older ones lack nothing known, but were not tried. */
const MIN_QEMU_MAJOR = 7
/** Image, build folder and a run's scratch disk fit. */
const COMFORTABLE_DISK_BYTES = 4 * GIB

/** Program to the package that brings it. */
const PROGRAMS: ReadonlyMap<string, string> = new Map([
  ...(process.platform === 'linux'
    ? [['bwrap', 'bubblewrap'] as const, ['setpriv', 'util-linux'] as const, ['flock', 'util-linux'] as const]
    : []),
  ['mkfs.erofs', 'erofs-utils'],
])

/** What the image's own check found, without the heading. */
export interface ImageCheck extends Omit<Finding, 'id' | 'title'> {
  /** The image's kernel, with which accelerators are tried; absent when there is no image yet. */
  readonly kernel?: string
}

interface DoctorOptions {
  readonly folders: Folders
  readonly checkImage: () => Promise<ImageCheck>
  readonly env?: Readonly<Record<string, string | undefined>>
  /** Whether to try accelerators again whose result is known. Default: true. */
  readonly fresh?: boolean
}

/** Looks at everything and never throws for what it finds; takes up to 15 s where an accelerator is broken. */
export async function runDoctor(options: DoctorOptions): Promise<Finding[]> {
  const { folders, env = process.env, fresh = true } = options
  const state = await checkFolders(folders)
  const image = await guardImage(options.checkImage)
  const { kernel, ...imageFinding } = image
  return [
    checkNode(),
    ...(await checkMachine(folders, kernel, fresh)),
    await checkPrograms(),
    { id: 'image', title: 'VM image', ...imageFinding },
    await checkTemplates(folders.cache),
    checkMemory(),
    await checkDisk(state.status === 'fail' ? '/' : folders.home, 'disk-state', 'Disk for state and runs'),
    await checkDisk(state.status === 'fail' ? '/' : folders.cache, 'disk-cache', 'Disk for images'),
    state,
    ...(await checkConfig({ folders, env })),
  ]
}

function checkNode(): Finding {
  const title = 'Node.js'
  const seen = process.versions.node
  if (Number.parseInt(seen, 10) >= MIN_NODE_MAJOR) return { id: 'node', title, status: 'ok', seen }
  const remedy = `Install Node ${MIN_NODE_MAJOR} or newer, or use scripts/run, which brings its own.`
  return { id: 'node', title, status: 'fail', seen, remedy }
}

async function checkMachine(
  folders: Folders,
  kernel: string | undefined,
  fresh: boolean,
): Promise<Finding[]> {
  const found = await searchProgram(QEMU)
  const qemu = found.path
  if (qemu === undefined) return [noQemu(`${QEMU} is not on PATH${describeLeftOut(found)}`)]
  try {
    const machine = await probeMachine({
      qemu,
      ...(kernel === undefined ? {} : { kernel }),
      cacheDirectory: folders.cache,
      confine: 'auto',
      fresh,
    })
    return [
      describeQemu(machine),
      describeAccelerator(machine, kernel !== undefined),
      describeConfinement(machine),
    ]
  } catch (error) {
    if (error instanceof VmError) return [noQemu(error.seen)]
    return [noQemu(errorMessage(error))]
  }
}

function noQemu(seen: string): Finding {
  const remedy = 'Install QEMU (Debian: apt install qemu-system-x86, macOS: brew install qemu).'
  return { id: 'qemu', title: 'QEMU', status: 'fail', seen, remedy }
}

function describeQemu({ qemu, qemuVersion }: Machine): Finding {
  const finding = { id: 'qemu', title: 'QEMU', seen: `${qemuVersion} at ${qemu}` }
  if (Number.parseInt(qemuVersion, 10) >= MIN_QEMU_MAJOR) return { ...finding, status: 'ok' }
  return {
    ...finding,
    status: 'warn',
    remedy: `Use QEMU ${MIN_QEMU_MAJOR} or newer; older versions are untested.`,
  }
}

/** The other programs that a run or an image needs, by the path that is run, and what PATH names but is not. */
export async function checkPrograms(search = searchProgram): Promise<Finding> {
  const heading = { id: 'programs', title: 'Programs' }
  const names = [...PROGRAMS.keys()]
  const found = await Promise.all(names.map((name) => search(name)))
  const paths = names.map((name, at) => found[at]?.path ?? `no ${name}`)
  const leftOut = describeLeftOut(await search(QEMU), ...found)
  const seen = `${paths.join(', ')}${leftOut}`
  const missing = names.filter((_, at) => found[at]?.path === undefined).map((name) => PROGRAMS.get(name))
  const remedies = [
    missing.length > 0 ? `Install ${[...new Set(missing)].join(' ')}.` : '',
    leftOut === '' ? '' : 'Remove write permission for others, or remove the folder from PATH.',
  ]
  const remedy = remedies.filter(Boolean).join(' ')
  if (remedy === '') return { ...heading, status: 'ok', seen }
  // Every run takes a lock; the other programs have a substitute, or only the build of an image needs them.
  const hasNoLocks = paths.includes('no flock')
  return { ...heading, status: hasNoLocks ? 'fail' : 'warn', seen, remedy }
}

/** Says what protects the user, not only what is fast: see specs/security.md. */
function describeAccelerator({ accelerator, trials }: Machine, tried: boolean): Finding {
  const heading = { id: 'accelerator', title: 'Accelerator' }
  if (accelerator !== 'tcg') {
    const seen = `${accelerator}: the CPU isolates the guest, a boundary that QEMU's maintainers support`
    return { ...heading, status: 'ok', seen }
  }
  const why = describeTrials(trials)
  const none = tried ? noAccelerator : 'accelerators are checked once the image is built'
  return {
    ...heading,
    status: 'warn',
    seen:
      `tcg, software emulation (${why || none}): slower, and QEMU's maintainers do not call it a security ` +
      'boundary, so it is the confinement of QEMU that protects you',
    remedy: acceleratorRemedy(),
  }
}

function describeConfinement({ confinement, seccomp, accelerator }: Machine): Finding {
  const heading = { id: 'confinement', title: 'Confinement of QEMU' }
  const best = confinement.launchers[0]
  if (best?.kind === 'bubblewrap') {
    const user = best.drop ? 'as a user of its own for each VM' : 'as user nobody in a user namespace'
    const seen = `bubblewrap and seccomp: no network, no home, no other programs, ${user}`
    return { ...heading, status: 'ok', seen }
  }
  const around = seccomp ? "QEMU's own seccomp sandbox alone" : 'none'
  const weak = accelerator === 'tcg' ? ', and software emulation is no security boundary either' : ''
  return {
    ...heading,
    status: 'warn',
    ...(accelerator === 'tcg' ? { isUnsafe: true } : {}),
    seen: `${around}${confinement.reason ? ` (${confinement.reason})` : ''}${weak}`,
    remedy:
      process.platform === 'linux'
        ? 'Install bubblewrap (apt install bubblewrap) and allow unprivileged user namespaces.'
        : 'Run on Linux where QEMU has to be confined.',
  }
}

async function guardImage(check: () => Promise<ImageCheck>): Promise<ImageCheck> {
  try {
    return await check()
  } catch (error) {
    const seen = errorMessage(error)
    return { status: 'fail', seen, remedy: 'Build the image: caisson image build.' }
  }
}

function checkMemory(): Finding {
  const available = process.availableMemory()
  const heading = { id: 'memory', title: 'Memory' }
  const seen = `${gibibytes(available)} GiB available of ${gibibytes(totalmem())}`
  if (available >= DEFAULT_MEMORY_BYTES) return { ...heading, status: 'ok', seen }
  const status = available < START_MEMORY_BYTES ? 'fail' : 'warn'
  const remedy = `Close other programs, or give VMs less memory than the default of ${gibibytes(DEFAULT_MEMORY_BYTES)} GiB (--ram).`
  return { ...heading, status, seen, remedy }
}

async function checkDisk(folder: string, id: string, title: string): Promise<Finding> {
  const free = await readFreeBytes(folder).catch(() => 0)
  const seen = `${gibibytes(free)} GiB free at ${folder}`
  if (free >= COMFORTABLE_DISK_BYTES) return { id, title, status: 'ok', seen }
  const variable = id === 'disk-cache' ? 'CAISSON_CACHE' : 'CAISSON_HOME'
  return {
    id,
    title,
    status: free >= GIB ? 'warn' : 'fail',
    seen,
    remedy: `Free disk space or set ${variable} to a larger disk; a VM's disk may grow to ${gibibytes(DEFAULT_DISK_BYTES)} GiB.`,
  }
}

async function checkFolders(folders: Folders): Promise<Finding> {
  const heading = { id: 'folders', title: 'State folders' }
  try {
    await prepareFolders(folders)
    for (const folder of [folders.home, folders.cache]) await checkFolder(folder)
    return { ...heading, status: 'ok', seen: `${folders.home} and ${folders.cache}, yours alone` }
  } catch (error) {
    const seen = errorMessage(error)
    const remedy = hasCode(error, 'state_unavailable')
      ? 'Correct the folder, or set CAISSON_HOME and CAISSON_CACHE to other folders.'
      : 'Set CAISSON_HOME and CAISSON_CACHE to other folders.'
    return { ...heading, status: 'fail', seen, remedy }
  }
}

function gibibytes(bytes: number): string {
  return (bytes / GIB).toFixed(1)
}

const heading = { id: 'template', title: 'Start of VMs' }
const AGAIN = 'To retry, run caisson vm templates --prune --all; the next run creates a template.'

/** @param cache the cache folder; it need not exist */
async function checkTemplates(cache: string): Promise<Finding> {
  const store = new TemplateStore(cache)
  const [templates, [failure]] = [await store.list(), await store.failures()]
  const intact = templates.filter(({ record }) => record !== undefined)
  // What failed before a VM last began from a template was of another kind or of an earlier image.
  const lastUse = Math.max(0, ...intact.map(({ usedAtMs }) => usedAtMs))
  if (failure !== undefined && failure.atMs >= lastUse) return describeFailure(failure)
  if (intact.length > 0) return describeTemplates(intact, templates.length - intact.length)
  const free = await readFreeBytes(cache).catch(() => 0)
  if (free >= TEMPLATE_DISK_BYTES)
    return { ...heading, status: 'ok', seen: 'no template yet; the next run creates it' }
  return {
    ...heading,
    status: 'warn',
    seen: `booted: a template needs ${formatBytes(TEMPLATE_DISK_BYTES)}, and there are ${formatBytes(free)} at ${cache}`,
    remedy: 'Free disk space (caisson clean), or set CAISSON_CACHE to a larger disk.',
  }
}

function describeFailure({ name, reasons }: TemplateFailure): Finding {
  const which = `VMs of the kind ${name.slice(0, 12)}`
  const seen =
    reasons.plain === undefined
      ? `${which} load the full memory of a template, because it cannot be mapped: ${reasons.mapped}`
      : `${which} are booted: ${describeReasons(reasons)}`
  return { ...heading, status: 'warn', seen, remedy: `Fix the reported problem. ${AGAIN}` }
}

function describeTemplates(intact: readonly TemplateInfo[], damaged: number): Finding {
  const bytes = intact.reduce((sum, info) => sum + info.bytes, 0)
  const how = intact[0]?.record?.kind === 'mapped' ? 'its memory mapped' : 'its memory loaded whole'
  const more = damaged === 0 ? '' : `; ${damaged} damaged, rebuilt at next use`
  const seen = `as copies of a template, ${how} (${formatCount(intact.length, 'template')}, ${formatBytes(bytes)}${more})`
  return { ...heading, status: 'ok', seen }
}

const MB = 1_000_000

/** @param options with `Folders.cache` */
export async function checkImage(options: Pick<ImageOptions, 'cacheDir' | 'sources'>): Promise<ImageCheck> {
  try {
    const root = await findRoot(options)
    if (root === undefined) {
      return {
        status: 'warn',
        seen: 'not built yet',
        remedy:
          'Run caisson image build, or start a run, which builds it too (about a minute, 60 MB download).',
      }
    }
    const { files, versions } = root.manifest
    const bytes = Object.values(files).reduce((sum, file) => sum + file.bytes, 0)
    // Another version of Caisson has an agent of its own, on the same root.
    const isWhole = (await findImage(options)) !== undefined
    const rest = isWhole ? '' : '; the next run adds the agent of this version, which takes seconds'
    const seen = `${root.key.slice(0, 12)}: ${(bytes / MB).toFixed(0)} MB, Debian ${versions.debian}, Node ${versions.node}${rest}`
    return { status: 'ok', seen, kernel: path.join(root.directory, 'vmlinuz') }
  } catch (error) {
    if (error instanceof ImageError) return { status: 'fail', seen: error.message, remedy: error.remedy }
    throw error
  }
}
