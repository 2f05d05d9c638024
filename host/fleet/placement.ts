/** What a run requires of a host, and whether a host has it. Pure. */
import * as z from 'zod'

/** What hosts are labelled with and runs require. */
export const Label = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[A-Za-z0-9._/-]{0,63})?$/, 'expected NAME or NAME=VALUE')
export const labelsMax = 32
/** What VMs of a host run with: `kvm` on Linux, `hvf` on macOS, `tcg` where it emulates. */
const FleetAccelerator = z.enum(['kvm', 'hvf', 'tcg'])
const Digest = z.string().min(1).max(128)
const Version = z.string().min(1).max(64)

/** What a run requires. Absent: anything. */
export const Requires = z.strictObject({
  /** Each of them, such as `gpu` or `zone=eu`. */
  labels: z.array(Label).max(labelsMax).optional(),
  /** As `process.arch` says, such as `x64`. */
  architecture: z.string().min(1).max(32).optional(),
  accelerator: FleetAccelerator.optional(),
  memoryMib: z
    .int()
    .min(1)
    .max(2 ** 30)
    .optional(),
  /** Digest of the image that the run began with. */
  image: Digest.optional(),
  /** Version of the newest host that wrote to its journal. */
  madeWith: Version.optional(),
})
export type Requires = Readonly<z.infer<typeof Requires>>

/** What a host has. Null: it does not say. */
export const HostFacts = z.object({
  labels: z.array(Label).max(labelsMax).default([]),
  architecture: z.string().max(32).nullable().default(null),
  accelerator: FleetAccelerator.nullable().default(null),
  /** Free for VMs, MiB. */
  freeMib: z.number().nullable().default(null),
  /** Digest of the image that its VMs start with. */
  image: Digest.nullable().default(null),
})
export type HostFacts = Readonly<z.infer<typeof HostFacts>>

/** Why a host does not serve such runs. */
export type Fault = 'labels' | 'architecture' | 'accelerator' | 'memory' | 'image' | 'version'

/** Text for people: what the run needs, and what the host has. Undefined: the host serves the run. */
export function faultOf(
  requires: Requires,
  facts: HostFacts,
  version: string,
): { readonly fault: Fault; readonly text: string } | undefined {
  const { labels = [], architecture, accelerator, memoryMib, image, madeWith } = requires
  const missing = labels.filter((label) => !facts.labels.includes(label))
  if (missing.length > 0) return { fault: 'labels', text: `has no label ${missing.join(', ')}` }
  if (architecture !== undefined && facts.architecture !== architecture)
    return { fault: 'architecture', text: `has the architecture ${facts.architecture}, not ${architecture}` }
  if (accelerator !== undefined && facts.accelerator !== accelerator)
    return { fault: 'accelerator', text: `has the accelerator ${facts.accelerator}, not ${accelerator}` }
  if (image !== undefined && facts.image !== null && facts.image !== image)
    return { fault: 'image', text: `has another image than ${image}` }
  if (madeWith !== undefined && compareVersions(version, madeWith) < 0)
    return { fault: 'version', text: `has the older version ${version}; the run was written by ${madeWith}` }
  // Last: it is what changes by itself.
  if (memoryMib !== undefined && facts.freeMib !== null && facts.freeMib < memoryMib)
    return { fault: 'memory', text: `has ${Math.floor(facts.freeMib)} MiB free of ${memoryMib}` }
  return undefined
}

/** What the run requires once a host of this version, with this image, carries it out. */
export function requiresAfter(requires: Requires, facts: HostFacts, version: string): Requires {
  const { madeWith, image = facts.image ?? undefined } = requires
  const newest = madeWith === undefined || compareVersions(version, madeWith) > 0 ? version : madeWith
  return { ...requires, madeWith: newest, ...(image === undefined ? {} : { image }) }
}

/** By numbers, `1.10` after `1.9`; what follows a `-` comes before the version without it. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [partsOf(a), partsOf(b)]
  for (let index = 0; index < Math.max(left.numbers.length, right.numbers.length); index += 1) {
    const difference = (left.numbers[index] ?? 0) - (right.numbers[index] ?? 0)
    if (difference !== 0) return difference
  }
  if (left.suffix === right.suffix) return 0
  if (left.suffix === '' || right.suffix === '') return left.suffix === '' ? 1 : -1
  return left.suffix < right.suffix ? -1 : 1
}

function partsOf(version: string): { readonly numbers: readonly number[]; readonly suffix: string } {
  const [main = '', ...suffix] = version.split('-')
  return { numbers: main.split('.').map((part) => Number.parseInt(part, 10) || 0), suffix: suffix.join('-') }
}
