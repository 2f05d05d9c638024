/**
 * A run as one file: a tar stream under zstd. The first entry is the manifest, which names all others in their order with
 * their sizes and digests; nothing else is in it.
 */
import { hash } from 'node:crypto'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { Count, Line, RunId, Sha256 } from '#specs/protocol/text.ts'
import { parseJson } from '../files/json.ts'

export const manifestName = 'manifest.json'
export const manifestMaxBytes = 4 * 1024 * 1024

const MIB = 1024 ** 2
const GIB = 1024 ** 3
/** Of files that are read as one string; V8 makes none that is longer. */
const textMaxBytes = 512 * MIB - 24

interface MemberKind {
  readonly name: RegExp
  /** `text`: known keys are taken out. `exact`: a digest or a disk; refused where it holds one. */
  readonly form: 'text' | 'exact' | 'sparse'
  /** In the archive. */
  readonly maxBytes: number
  /** Of the file that a sparse member becomes. */
  readonly maxFileBytes?: number
}

/** All that there can be, in the order of the archive. */
export const memberKinds: readonly MemberKind[] = [
  { name: /^journal\.jsonl$/, form: 'exact', maxBytes: 256 * MIB },
  { name: /^replay\.json$/, form: 'text', maxBytes: 32 * MIB },
  { name: /^run\.json$/, form: 'text', maxBytes: 32 * MIB },
  { name: /^exchanges\.jsonl$/, form: 'text', maxBytes: 512 * MIB },
  { name: /^agent\.jsonl$/, form: 'text', maxBytes: 512 * MIB },
  { name: /^console\.txt$/, form: 'text', maxBytes: 512 * MIB },
  { name: /^manifest\.jsonl$/, form: 'exact', maxBytes: textMaxBytes },
  { name: /^changes\.jsonl$/, form: 'exact', maxBytes: textMaxBytes },
  { name: /^changes\.bin$/, form: 'exact', maxBytes: 64 * GIB },
  { name: /^base\/[0-9a-f]{64}$/, form: 'exact', maxBytes: MIB },
  { name: /^workspace-files\.json$/, form: 'exact', maxBytes: textMaxBytes },
  { name: /^workspace\.erofs$/, form: 'sparse', maxBytes: 17 * GIB, maxFileBytes: 1_024 * GIB },
  { name: /^scratch\/disk\.json$/, form: 'exact', maxBytes: MIB },
  { name: /^scratch\/base\.raw$/, form: 'sparse', maxBytes: 1_025 * GIB, maxFileBytes: 1_024 * GIB },
  {
    name: /^scratch\/layer-\d{1,9}\.qcow2$/,
    form: 'sparse',
    maxBytes: 1_025 * GIB,
    maxFileBytes: 1_025 * GIB,
  },
]

export function kindOf(name: string): MemberKind | undefined {
  return memberKinds.find((kind) => kind.name.test(name))
}

/** A file of a run. */
export const Member = z.strictObject({
  name: z.string().max(100),
  /** In the archive. */
  bytes: Count,
  sha256: Sha256,
  /** Size of the file, for a sparse one. */
  fileBytes: Count.optional(),
})
export type Member = z.infer<typeof Member>

/** Names of environment variables and headers of an MCP server that the archive leaves out. */
export const Withheld = z.record(
  Line,
  z.strictObject({ env: z.array(Line).max(1_000), headers: z.array(Line).max(1_000) }),
)
export type Withheld = z.infer<typeof Withheld>

const Content = z.strictObject({
  format: z.literal('caisson-run'),
  version: z.literal(1),
  runId: RunId,
  /** The image and the agent of the last VM; null: there was none. */
  image: z.strictObject({ key: Line, agentDigest: Line }).nullable(),
  journal: z.strictObject({ events: Count, bytes: Count, head: Sha256, closed: z.boolean() }),
  /** Whether it is an interrupted run with all that another process needs to continue it. */
  canContinue: z.boolean(),
  withheld: Withheld,
  members: z.array(Member).min(1).max(200_000),
})
/** `sha256`: over the JSON of the rest, in its order. */
const ArchiveManifest = Content.extend({ sha256: Sha256 })
export type ArchiveManifest = z.infer<typeof Content>

export function encodeManifest(content: ArchiveManifest): Buffer {
  const sha256 = hash('sha256', JSON.stringify(content))
  return Buffer.from(`${JSON.stringify({ ...content, sha256 })}\n`)
}

/** @throws {CaissonError} `invalid_archive` */
export function decodeManifest(bytes: Buffer): ArchiveManifest {
  const value = parseJson(bytes.toString('utf8'))
  const parsed = ArchiveManifest.safeParse(value, plainMessages)
  if (!parsed.success) {
    const issues = describeIssues(parsed.error, { root: 'its manifest', max: 1 })
    throw invalidArchive(`it is not of this format: ${issues}`)
  }
  const { sha256, ...content } = parsed.data
  if (!bytes.equals(encodeManifest(content))) throw invalidArchive('its manifest was changed or damaged')
  const fault = findMemberFault(content.members)
  if (fault !== undefined) throw invalidArchive(fault)
  return content
}

/** Undefined: each is known, none twice, in the order of the kinds, within its bounds. */
export function findMemberFault(members: readonly Member[]): string | undefined {
  let last = 0
  const seen = new Set<string>()
  for (const { name, bytes, fileBytes } of members) {
    const at = memberKinds.findIndex((kind) => kind.name.test(name))
    const kind = memberKinds[at]
    const shown = JSON.stringify(name)
    if (kind === undefined) return `it names the file ${shown}, which no run has`
    if (at < last || seen.has(name)) return `${shown} is named twice, or not in its place`
    if (bytes > kind.maxBytes) return `${shown} has ${bytes} bytes, expected at most ${kind.maxBytes}`
    if ((kind.form === 'sparse') !== (fileBytes !== undefined))
      return `${shown} has another form than such a file has`
    if (fileBytes !== undefined && fileBytes > (kind.maxFileBytes ?? 0))
      return `${shown} becomes a file of ${fileBytes} bytes, expected at most ${kind.maxFileBytes}`
    last = at
    seen.add(name)
  }
  return undefined
}

export function invalidArchive(why: string, cause?: unknown): CaissonError {
  return new CaissonError('invalid_archive', `the archive cannot be imported: ${why}`, {
    cause,
    remedy: 'export the run again: caisson runs export RUN -o FILE',
  })
}
