/** Which fleet a command means, by its options and the variables: for `serve` and `fleet`. */
import { hostname } from 'node:os'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { type FleetAddress, readFleetAddress } from '../../fleet/address.ts'
import { Label, labelsMax } from '../../fleet/placement.ts'
import { FleetMember, type FleetMemberOptions } from '../../fleet-member.ts'
import { KnownMachineFacts } from '../../machine-facts.ts'
import { resolveFolders } from '../../state/folders.ts'
import type { Io } from '../io.ts'

export interface FleetFlags {
  readonly fleet?: string
  readonly fleetFile?: string
  readonly fleetFiles?: string
  readonly fleetLabels?: string
  readonly fleetName?: string
}

/** Undefined: none. @throws {CaissonError} `invalid_options` */
export async function addressOf(io: Io, { fleet, fleetFile }: FleetFlags): Promise<FleetAddress | undefined> {
  return await readFleetAddress({
    ...(fleet === undefined ? {} : { argument: fleet }),
    ...(fleetFile === undefined ? {} : { file: fleetFile }),
    env: io.env,
  })
}

/** @throws {CaissonError} `invalid_options` */
export async function requireAddress(io: Io, flags: FleetFlags): Promise<FleetAddress> {
  const address = await addressOf(io, flags)
  if (address !== undefined) return address
  throw new CaissonError('invalid_options', 'no fleet is named', {
    remedy: 'pass --fleet postgres://USER@HOST/DATABASE or --fleet-file FILE, or set CAISSON_FLEET',
  })
}

/** This host in its fleet. Undefined: it is in none. @throws {CaissonError} `invalid_options`, `state_unavailable` */
export async function openMember(
  io: Io,
  flags: FleetFlags,
  options: Pick<FleetMemberOptions, 'slots' | 'bounds' | 'warn'>,
): Promise<FleetMember | undefined> {
  const { fleetFiles, fleetLabels = '', fleetName } = flags
  const labels = labelsOf(fleetLabels)
  const name = fleetName === undefined ? hostname() : nameOf(fleetName)
  const address = await addressOf(io, flags)
  if (address === undefined) {
    if (fleetFiles === undefined && fleetName === undefined && labels.length === 0) return undefined
    throw new CaissonError('invalid_options', '--fleet-files, --fleet-labels and --fleet-name need a fleet', {
      remedy: 'pass --fleet or --fleet-file too, or set CAISSON_FLEET',
    })
  }
  if (fleetFiles === undefined)
    throw new CaissonError('invalid_options', 'nothing says where the fleet keeps the files of runs', {
      remedy: 'pass --fleet-files with a directory that all hosts see, or s3://BUCKET/PREFIX',
    })
  const files = fleetFiles.startsWith('s3://')
    ? fleetFiles
    : path.resolve(io.directory ?? process.cwd(), fleetFiles)
  const { env, version } = io
  const machine = await KnownMachineFacts.open(resolveFolders(env))
  const facts = () => {
    const { accelerator, image } = machine.now
    const freeMib = process.availableMemory() / 2 ** 20
    return { labels, architecture: process.arch, freeMib, accelerator, image }
  }
  return await FleetMember.open({ address, files, env, name, version, facts, ...options })
}

/** Of `--fleet-name`. @throws {CaissonError} `invalid_options` */
export function nameOf(text: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(text)) return text
  throw new CaissonError(
    'invalid_options',
    `--fleet-name: ${JSON.stringify(text.slice(0, 100))} cannot be used`,
    {
      remedy: 'pass 1 to 63 letters, digits and . _ -, beginning with a letter or digit',
    },
  )
}

/** Labels of `--fleet-labels`, each once and in order. @throws {CaissonError} `invalid_options` */
export function labelsOf(text: string): string[] {
  const labels = text === '' ? [] : [...new Set(text.split(',').map((label) => label.trim()))].toSorted()
  const wrong = labels.find((label) => !Label.safeParse(label).success)
  if (wrong === undefined && labels.length <= labelsMax) return labels
  const seen = wrong === undefined ? `${labels.length} labels` : JSON.stringify(wrong.slice(0, 100))
  throw new CaissonError('invalid_options', `--fleet-labels: ${seen} cannot be used`, {
    remedy: `pass at most ${labelsMax} labels as NAME or NAME=VALUE, of letters, digits and . _ / -, with commas between them`,
  })
}
