/** What a run's folder says of a run that was imported: for which directory it is, and what it was made with. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { Count, Line, Milliseconds } from '#specs/protocol/text.ts'
import { replaceFile } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'

/** Names of variables and headers of MCP servers without their values. */
export const WithheldValues = z.record(Line, z.strictObject({ env: z.array(Line), headers: z.array(Line) }))

const ImportedRun = z.strictObject({
  version: z.literal(1),
  /** ms since 1970. */
  at: Milliseconds,
  /** The directory on this machine; whatever the run's own machine had. */
  workspace: z.string().min(1),
  /** Image and agent of its last VM; null: it had none. */
  image: z.strictObject({ key: Line, agentDigest: Line }).nullable(),
  withheld: WithheldValues,
  /** Lines of the journal that came with the archive; absent in older imports. */
  lines: Count.optional(),
})
export type ImportedRun = z.infer<typeof ImportedRun>

const fileOf = (runDirectory: string) => path.join(runDirectory, 'imported.json')

export async function writeImported(runDirectory: string, imported: ImportedRun): Promise<void> {
  await replaceFile(fileOf(runDirectory), `${JSON.stringify(imported)}\n`)
}

/** What people answered in these lines is no answer here. */
export function importedLinesOf(imported: ImportedRun | undefined): number {
  return imported === undefined ? 0 : (imported.lines ?? Number.POSITIVE_INFINITY)
}

/** Undefined for a run of this machine. @throws {CaissonError} `state_corrupted` */
export async function readImported(runDirectory: string): Promise<ImportedRun | undefined> {
  const file = fileOf(runDirectory)
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  })
  if (text === undefined) return undefined
  const parsed = ImportedRun.safeParse(parseJson(text))
  if (parsed.success) return parsed.data
  throw new CaissonError('state_corrupted', `${file} cannot be read; import the run again`)
}
