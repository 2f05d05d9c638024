/**
 * Hooks that are commands of the user's configuration: what happens as JSON on standard input, the decision as JSON on standard
 * output. Empty output and exit code 0 allow, exit code 2 denies with standard error as the reason, all else is a failure.
 */
import path from 'node:path'
import type { HookConfig } from '../config/schema.ts'
import { parseJson } from '../files/json.ts'
import { findCommand } from '../processes/programs.ts'
import { defaultTimeoutMs } from './code-hook.ts'
import { defaultOnFailure, type Hook, type HookAnswer, type HookInput, readVerdict } from './hook.ts'
import { runCommand } from './run-command.ts'

/** Exit code of a no without a decision on standard output. */
const denyCode = 2
const reasonMaxChars = 2_000

/** @param env of the user: for PATH and HOME, and a few variables more */
export function commandHook(config: HookConfig, env: Readonly<Record<string, string | undefined>>): Hook {
  const { point, tools, command, timeoutMs = defaultTimeoutMs } = config
  const [program = '', ...argv] = command
  return {
    name: nameOfHook(config),
    point,
    ...(tools === undefined ? {} : { tools }),
    onFailure: config.onFailure ?? defaultOnFailure(point),
    ask: async (input, signal) => {
      const found = await findCommand(program, env)
      if (!found.ok) return found
      const ran = await runCommand(found.value, argv, {
        input: `${JSON.stringify(input)}\n`,
        variables: { CAISSON_HOOK_POINT: point, CAISSON_RUN_ID: input.runId },
        timeoutMs,
        signal,
        env,
      })
      return ran.ok ? read(ran.value, input) : ran
    },
  }
}

/** The name used in the journal and for people. */
export function nameOfHook({ name, command }: Pick<HookConfig, 'name' | 'command'>): string {
  return name ?? path.basename(command[0] ?? '')
}

function read(
  { code, stdout, stderr }: { code: number | null; stdout: string; stderr: string },
  { point }: HookInput,
): HookAnswer {
  const complaint = stderr.trim().slice(-reasonMaxChars)
  if (code === denyCode)
    return { ok: true, value: { decision: 'deny', ...(complaint === '' ? {} : { reason: complaint }) } }
  if (code !== 0) {
    const how = code === null ? 'was ended by a signal' : `ended with exit code ${code}`
    return { ok: false, error: complaint === '' ? how : `${how}; it said: ${complaint}` }
  }
  if (stdout.trim() === '') return { ok: true, value: { decision: 'allow' } }
  const value = parseJson(stdout)
  return value === undefined
    ? { ok: false, error: 'printed what is not JSON on standard output' }
    : readVerdict(value, point)
}
