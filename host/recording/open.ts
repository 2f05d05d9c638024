/** Finds the recording that a person named: a run of theirs, or the folder of one. */
import { statSync } from 'node:fs'
import path from 'node:path'
import type { ProviderChoice } from '../providers/providers.ts'
import { Recording } from './replay.ts'

const FILE = 'exchanges.jsonl'

/**
 * @param name a run, as `findRun` knows it, or a directory, which has a `/` or is there
 * @throws {CaissonError} `invalid_recording` and what `findRun` throws
 */
export async function openRecording(
  name: string,
  findRun: (name: string) => Promise<{ readonly exchanges: string }>,
): Promise<Recording> {
  const isFolder = name.includes('/') || statSync(name, { throwIfNoEntry: false })?.isDirectory() === true
  return await Recording.read(isFolder ? path.join(name, FILE) : (await findRun(name)).exchanges)
}

/** What a run asks that repeats a recording. */
export function recordedProvider({ header: { model, runId } }: Recording): ProviderChoice {
  const note = `Replaying the recording of ${runId}; nothing is sent to the network.`
  return { name: 'recording', model, baseUrl: null, keySource: null, notes: [note] }
}
