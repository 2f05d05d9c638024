/**
 * `shell_cmd` of the library: runs a program with arguments, without a shell. It starts below the working directory
 * but is not sandboxed: it has all rights of the application's user. The program ends with its process group after its
 * time limit, at its output limit, and when it exits; processes that leave the group (`setsid`) are not tracked.
 */

import { spawn } from 'node:child_process'
import * as z from 'zod'
import { failure } from '#specs/node/file-error.ts'
import { awaitProgram, type ProgramExit } from '#specs/node/program.ts'
import type { Result } from '#specs/protocol/error.ts'
import { endWithUs, harmlessVariables, hasGroups, signalGroup } from '../processes/child-group.ts'
import {
  type BuiltIn,
  defineBuiltIn,
  pathParameter,
  type ToolOutcome,
  toOutcome,
  withinDirectory,
} from './built-in.ts'
import { OutputKeeper } from './output.ts'
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
  evidence: 'external_action',
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

interface ProgramRequest {
  /** Looked up in PATH unless it contains `/`. */
  readonly command: string
  readonly args: readonly string[]
  readonly cwd: string
  readonly timeoutMs: number
}

export interface ProgramEnd extends Pick<ProgramExit, 'signal' | 'ended'> {
  /** Exit code; null when it was ended from outside. */
  readonly exitCode: number | null
  readonly stdout: string
  readonly stderr: string
  readonly durationMs: number
}

const stdoutBounds = { headBytes: 14 * 1024, tailBytes: 14 * 1024 }
const stderrBounds = { headBytes: 4 * 1024, tailBytes: 4 * 1024 }
const outputMaxBytes = 16 * 1024 * 1024
/** How long to wait for remaining output, in case another process keeps its pipes open. */
const lastOutputMs = 250

/** Rejects with Node's error when the program cannot be started. */
export async function runProgram(request: ProgramRequest, signal: AbortSignal): Promise<ProgramEnd> {
  const startedAt = performance.now()
  const child = spawn(request.command, [...request.args], {
    cwd: request.cwd,
    env: harmlessVariables(),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: hasGroups,
    windowsHide: true,
  })
  const stdout = new OutputKeeper(stdoutBounds)
  const stderr = new OutputKeeper(stderrBounds)
  // Its descendants end with it.
  const kill = (): void => signalGroup(child, 'SIGKILL')
  child.once('exit', kill)
  endWithUs(child)
  const { code, ...exit } = await awaitProgram(child, {
    timeoutMs: request.timeoutMs,
    signal,
    drainMs: lastOutputMs,
    kill,
    take: (stream, bytes) => {
      const keeper = stream === 'stdout' ? stdout : stderr
      keeper.take(bytes)
      return stdout.totalBytes + stderr.totalBytes <= outputMaxBytes
    },
  })
  const durationMs = Math.round(performance.now() - startedAt)
  return { ...exit, exitCode: code, stdout: stdout.text(), stderr: stderr.text(), durationMs }
}
