/** What hooks said, and what runs on the host, on one line each. Pure; all untrusted text goes through sanitize.ts. */
import type { HostEvent } from '#specs/protocol/event.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { Colors } from './colors.ts'
import { sanitizeLine } from './sanitize.ts'

type Of<T extends string> = Extract<HostEvent, { type: T }>

/** Nothing for a hook that let things continue as they were. */
export function hookLines(event: Of<'hook-end'>, colors: Colors): string[] {
  const { point, hook, decision, reason, arguments: changed, failed } = event
  const who = `    hook ${sanitizeLine(hook, 60)} (${point})`
  const why = reason === undefined ? '' : `: ${sanitizeLine(reason, 300)}`
  if (decision === 'deny') return [colors.red(`${who} denied it${why}`)]
  if (failed === true) return [colors.yellow(`${who} failed and is ignored${why}`)]
  if (decision === 'ask') return [colors.yellow(`${who} requires approval${why}`)]
  return changed === undefined
    ? []
    : [colors.yellow(`${who} changed the arguments: ${sanitizeLine(changed, 200)}`)]
}

/** That a call leaves the VM; how it ended the agent's own line says. */
export function hostToolLine({ tool }: Of<'host-tool-start'>, colors: Colors): string {
  return colors.cyan(`    ${sanitizeLine(tool, 60)} runs on this host, outside the VM`)
}

/** Calls without a known result, in a run that has ended. */
export function unknownCallLines(
  { openHostCalls }: Pick<RunState, 'openHostCalls'>,
  colors: Colors,
): string[] {
  return Object.values(openHostCalls).map(({ tool, arguments: given }) =>
    colors.red(
      `Unknown: ${sanitizeLine(tool, 60)} ${sanitizeLine(given, 160)} started on this host, but the journal has no result; check its effects before you repeat it`,
    ),
  )
}
