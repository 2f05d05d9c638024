/** A goal with what it needs, as both ways of carrying it out get it. */
import { CaissonError } from '#specs/errors.ts'
import type { HostTools } from '../host/index.ts'
import type { AgentOptions, GoalOptions } from './options.ts'

/** The application's tools, and why some of a folder were left out, by the name of the file without its ending. */
export interface GivenTools {
  readonly tools: HostTools
  readonly leftOut: ReadonlyMap<string, string>
}

/** A goal with what it needs. */
export interface Goal {
  readonly goal: string
  readonly options: Pick<GoalOptions, 'context' | 'tools'>
  readonly agent: AgentOptions
  readonly given: GivenTools
  /** Aborted with the goal's signal, its time, or the end of the agent. */
  readonly signal: AbortSignal
  note(notes: readonly string[]): void
}

/** @throws {CaissonError} `invalid_options` for a tool whose file could not be loaded */
export function requireLoaded({ options, given }: Pick<Goal, 'options' | 'given'>): void {
  for (const name of options.tools ?? []) {
    const reason = given.leftOut.get(name)
    if (reason !== undefined)
      throw new CaissonError(
        'invalid_options',
        `there is no tool ${name}: its file was left out, for ${reason}`,
      )
  }
}
