/** A run as its journal has it, without a VM: on a workspace of its own, with what it proposed to remember. */
import { realpath } from 'node:fs/promises'
import path from 'node:path'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { beginRun } from './begun-run.ts'

export const proposingRunId = 'run-0123456789abcdef0123'

export const noteIdOf = (number: number) => `mem-${number.toString(16).padStart(12, '0')}`

/** The event of a proposal. @param replaces the id of the note in whose place it is to stand */
export function proposed(number: number, text: string, replaces?: string): HostEvent {
  return {
    type: 'memory-propose',
    agentPath: 'root',
    note: { noteId: noteIdOf(number), text, tags: ['t'], state: 'proposed' },
    ...(replaces === undefined ? {} : { replaces }),
  }
}

/** Call it from within a test. */
export async function runThatProposed(events: readonly HostEvent[]) {
  const home = await temporaryFolder('home')
  const directory = await realpath(await temporaryFolder('workspace'))
  const env = {
    HOME: home,
    PATH: process.env.PATH,
    CAISSON_HOME: path.join(home, 'state'),
    CAISSON_CACHE: path.join(home, 'cache'),
    XDG_CONFIG_HOME: path.join(home, 'config'),
  }
  const host = new Host({ env })
  const begun = await beginRun(host, proposingRunId, directory)
  await using record = begun.record
  for (const event of events) await record.host(event)
  return { host, directory, env, state: record.state }
}
