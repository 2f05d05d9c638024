/** `caisson acp`: an agent for editors on standard input and output. Its runs are carried out by other processes. */
import { serveAcp, type UnstablePart } from '../../acp/agent.ts'
import type { RunStarter } from '../../acp/session-parts.ts'
import { followStarted, startInService } from '../carried-run.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { type VmFlags, vmOptionsOf, withFlags } from '../options.ts'
import { sanitizeLine, sanitizeWhole } from '../render/sanitize.ts'
import { startDetached } from './detach.ts'

export interface AcpFlags extends VmFlags {
  /** `KEY=VALUE` over the configuration. */
  readonly config?: string[]
  /** Starts no run in the service. */
  readonly here?: boolean
  /** `--no-template`. */
  readonly template?: false
  readonly unstable?: UnstablePart[]
}

export async function acp(io: Io, flags: AcpFlags): Promise<ExitCode> {
  const { config: overrides = [], unstable = [] } = flags
  const log = (line: string) => void io.stderr.write(`caisson: ${sanitizeLine(line, 1_000)}\n`)
  await using host = hostOf(io, overrides)
  const runs: RunStarter = {
    start: async ({ onNotes, ...options }) => {
      const told = { ...options, onNotes: (notes: readonly string[]) => onNotes?.(notes.map(withFlags)) }
      const started = await startInService(io, host, told, flags)
      return (
        started?.runId ?? (await startDetached(io, host, { kind: 'run', options, overrides, apply: false }))
      )
    },
    follow: (runId) => followStarted(host, runId),
    wake: (runId) =>
      startDetached(io, host, {
        ...{ kind: 'resume', runId, takeOver: false, fromBeginning: false },
        ...{ overrides, apply: false },
      }),
  }
  await serveAcp({
    ...{ host, runs, input: io.stdin, output: io.stdout, version: io.version, log, unstable },
    words: { line: sanitizeLine, block: (text) => sanitizeWhole(text, '') },
    options: { vm: { ...vmOptionsOf(flags), start: flags.template === false ? 'cold' : 'auto' } },
  })
  return exitCodes.completed
}
