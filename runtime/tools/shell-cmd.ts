/**
 * `shell_cmd` of the library: runs a program with arguments, without a shell. It starts below the working directory
 * but is not sandboxed: it has all rights of the application's user.
 */
import * as z from 'zod'
import { failure } from '#specs/node/file-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type BuiltIn, defineBuiltIn, type ToolOutcome, toOutcome } from './built-in.ts'
import { pathParameter, withinDirectory } from './directory-scope.ts'
import { type ProgramEnd, runProgram } from './program.ts'
import { shownPath } from './workspace-file.ts'

const defaultTimeoutMs = 120_000
const maxTimeoutMs = 600_000

/** The system ends an argument at a NUL. */
const withoutNul = (text: string): boolean => !text.includes('\0')

const parameters = z.strictObject({
  command: z
    .string()
    .min(1)
    .max(4_096)
    .refine(withoutNul, 'must not contain a NUL character')
    .describe('The program alone, such as git; its arguments go into parameters'),
  parameters: z
    .array(z.string().max(32_768).refine(withoutNul, 'must not contain a NUL character'))
    .max(1_000)
    .default([])
    .describe('Arguments, each as one item; there is no shell, so nothing in them is expanded'),
  directory: pathParameter.default('.').describe('Folder to run it in, relative to the working directory'),
  timeout: z
    .int()
    .min(1)
    .max(maxTimeoutMs)
    .default(defaultTimeoutMs)
    .describe('Milliseconds after which it is ended with what it started'),
  output_format: z.enum(['markdown', 'json']).default('markdown'),
})
type Input = z.output<typeof parameters>

export const shellCmdTool: BuiltIn = defineBuiltIn({
  name: 'shell_cmd',
  description:
    'Runs one program and gives its output and exit code. No shell: no pipes, redirections, variables or wildcards. There is no terminal and no input; what it leaves running is ended with it. Long output is cut in its middle.',
  parameters,
  readOnly: false,
  run: async (input, context) => {
    const ran = await withinDirectory(context, input.directory, {}, async (place) => {
      const opened = place.openDirectory()
      if (!opened.ok) return opened
      using directory = opened.value
      // By descriptor, so that it starts in the folder that was checked.
      const cwd = directory.at('.')
      if (typeof cwd !== 'string')
        return failure('unavailable', `no program can be run in ${place}: its path is no text.`)
      return await run(input, cwd, shownPath(place), context.signal)
    })
    return ran.ok ? ran.value : toOutcome(ran)
  },
})

async function run(
  { command, parameters: args, timeout, output_format }: Input,
  cwd: string,
  shownFolder: string,
  signal: AbortSignal,
): Promise<Result<ToolOutcome>> {
  try {
    const end = await runProgram({ command, args, cwd, timeoutMs: timeout }, signal)
    if (end.ended === 'cancelled') return failure('cancelled', 'The call was cancelled.')
    const value = { command, parameters: args, directory: shownFolder, ...end }
    const content = output_format === 'json' ? value : toMarkdown(value)
    return { ok: true, value: { ok: end.ended === null, content } }
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
    const hint =
      code === 'ENOENT'
        ? 'there is no such program; command is the program alone, its arguments go into parameters'
        : code === 'EACCES'
          ? 'it is not executable'
          : code === 'E2BIG'
            ? 'its arguments are too long for the system'
            : `it could not be started (${code || 'unknown reason'})`
    return failure('invalid_input', `${JSON.stringify(command.slice(0, 200))}: ${hint}.`)
  }
}

function toMarkdown(end: ProgramEnd & { readonly command: string; readonly directory: string }): string {
  const parts = [`**${describeEnd(end)}** (\`${end.command.replaceAll('`', "'")}\` in \`${end.directory}\`)`]
  if (end.stdout !== '') parts.push(`Output:\n${fenced(end.stdout)}`)
  if (end.stderr !== '') parts.push(`Standard error:\n${fenced(end.stderr)}`)
  return parts.join('\n\n')
}

function describeEnd({ ended, exitCode, signal, durationMs }: ProgramEnd): string {
  const seconds = (durationMs / 1_000).toFixed(1)
  if (ended === 'timeout')
    return `Ended after ${seconds} s because its time was over, with what it had started`
  if (ended === 'output') return `Ended after ${seconds} s because it did not stop writing output`
  return exitCode === null
    ? `Ended by ${signal ?? 'an unknown signal'} after ${seconds} s`
    : `Exit code ${exitCode} after ${seconds} s`
}

/** In a code fence that the text cannot close. */
function fenced(text: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map(({ length }) => length))
  const fence = '`'.repeat(longest + 1)
  return `${fence}\n${text.trimEnd()}\n${fence}`
}
