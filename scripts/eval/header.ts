/** What an evaluation was made with: `evaluation.json` in its folder. Two evaluations differ in this, or by chance. */
import { createHash } from 'node:crypto'
import { globSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { execa } from 'execa'
import * as z from 'zod'
import { readPackageVersion } from '../../host/files/package-version.ts'
import { Effort } from '../../specs/protocol/plan.ts'

const Name = z.string().regex(/^[\x21-\x7e]{1,200}$/)
const Sha256 = z.string().regex(/^[0-9a-f]{64}$/)

export const Header = z.strictObject({
  format: z.literal(1),
  /** Of Caisson. */
  version: Name,
  /** Of the checkout, with `+changes` where it has changes that are not committed. Null: it is no repository of git. */
  commit: Name.nullable(),
  /** `offline`, or the name of the server. */
  provider: Name,
  /** As the server knows it. Null: the server's list decides; the attempts have the model. */
  model: Name.nullable(),
  /** What `--model` named, which may begin with the name of a server. Null: it was not given. */
  modelOption: Name.nullable(),
  /** Null: the model's own. */
  effort: Effort.nullable(),
  /** Of the sources that have what the model reads: prompts, tools, plans. */
  promptsSha256: Sha256,
  /** Of the sources of the tasks and their checks. */
  tasksSha256: Sha256,
  tasks: z.array(z.string().regex(/^[a-z0-9-]{1,100}$/)).min(1),
  tries: z.int().positive(),
  startedAt: z.iso.datetime(),
})
export type Header = z.infer<typeof Header>

const root = path.resolve(import.meta.dirname, '../..')

export async function headerFor(
  about: Pick<Header, 'provider' | 'model' | 'modelOption' | 'effort' | 'tasks' | 'tries'>,
): Promise<Header> {
  return {
    format: 1,
    version: readPackageVersion(),
    commit: await findCommit(),
    ...about,
    promptsSha256: digestOf(['agent/context', 'agent/plan', 'agent/tools']),
    tasksSha256: digestOf(['scripts/eval/tasks', 'scripts/eval/task.ts', 'scripts/eval/verdict.ts']),
    startedAt: new Date().toISOString(),
  }
}

/** What of two headers has to be equal for attempts of one evaluation. The name of the first that differs. */
export function findDifference(a: Header, b: Header): keyof Header | undefined {
  const fixed = ['version', 'provider', 'model', 'effort', 'promptsSha256', 'tasksSha256'] as const
  return fixed.find((name) => a[name] !== b[name])
}

/** One line. */
export function describeHeader(header: Header): string {
  const { version, commit, provider, model, effort, promptsSha256, startedAt } = header
  const parts = [
    model ?? `default model of ${provider}`,
    `effort ${effort ?? 'as the model does by itself'}`,
    `Caisson ${version}${commit === null ? '' : ` (${commit.replace(/^[0-9a-f]{40}/, (id) => id.slice(0, 10))})`}`,
    `prompts ${promptsSha256.slice(0, 10)}`,
    startedAt,
  ]
  return parts.join(', ')
}

/** @param places files, and folders of TypeScript, from the root of the checkout */
function digestOf(places: readonly string[]): string {
  const hash = createHash('sha256')
  for (const file of globSync(
    places.map((place) => (place.endsWith('.ts') ? place : `${place}/**/*.ts`)),
    { cwd: root },
  ).sort())
    hash
      .update(`${file}\0`)
      .update(readFileSync(path.join(root, file)))
      .update('\0')
  return hash.digest('hex')
}

async function findCommit(): Promise<string | null> {
  const git = async (...args: string[]) =>
    (await execa('git', args, { cwd: root, timeout: 30_000, stdin: 'ignore' })).stdout.trim()
  try {
    const commit = await git('rev-parse', 'HEAD')
    return (await git('status', '--porcelain')) === '' ? commit : `${commit}+changes`
  } catch {
    return null
  }
}
