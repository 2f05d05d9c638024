/** `caisson workflow run`: starts a run that carries out a workflow file, and shows it as any run. */
import { readFile } from 'node:fs/promises'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { ownRun } from '../carried-run.ts'
import type { ExitCode } from '../exit-codes.ts'
import type { Io } from '../io.ts'
import { checkOutputFile } from './answer-output.ts'
import { type Begin, carryOut } from './run.ts'
import { optionsOf, type RunFlags } from './run-flags.ts'

export interface WorkflowRunFlags extends RunFlags {
  /** JSON, or `@` and a file with it. */
  readonly input?: string
}

export async function workflowRun(io: Io, file: string, flags: WorkflowRunFlags): Promise<ExitCode> {
  const input = flags.input === undefined ? undefined : await readInput(flags.input)
  const answerFile = flags.output === undefined ? undefined : await checkOutputFile(flags.output)
  const options = {
    ...(await optionsOf(io, '', flags)),
    ...(flags.workspace === undefined ? {} : { workspace: flags.workspace }),
  }
  const begin: Begin = async (host, { prompt: _, plan: __, ...given }) =>
    ownRun(await host.startWorkflow(file, { ...given, input }))
  const { code } = await carryOut(io, options, { ...flags, answerFile }, begin)
  return code
}

/** @throws {CaissonError} `invalid_options` */
async function readInput(given: string): Promise<unknown> {
  const file = given.startsWith('@') ? given.slice(1) : null
  const refuse = (why: string, cause: unknown) =>
    new CaissonError('invalid_options', `--input ${file === null ? '' : `@${file} `}${why}`, { cause })
  const text =
    file === null
      ? given
      : await readFile(file, 'utf8').catch((cause: unknown) => {
          throw refuse(`cannot be read: ${reasonOf(cause)}`, cause)
        })
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw refuse(`must be JSON: ${errorMessage(cause)}`, cause)
  }
}
