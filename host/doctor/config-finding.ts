// What doctor says of the user's configuration and of the model: whether the file fits, and whether the key is where
// it says, named by its source and never by its value.

import { existsSync } from 'node:fs'
import { configFile, loadConfig } from '../config/load.ts'
import type { KeyPlace } from '../keys/keys.ts'
import type { Folders } from '../state/folders.ts'
import type { ConfigFact } from './config-fact.ts'
import type { Finding } from './finding.ts'
import { inspectModel, inspectSections } from './inspect-config.ts'

const configuration = { id: 'configuration', title: 'Configuration' }
const key = { id: 'key', title: 'Model' }
const mend = 'Fix the reported problem, then run caisson config check again.'

/** The findings `configuration` and `key`. */
export async function checkConfig(place: KeyPlace & { readonly folders: Folders }): Promise<Finding[]> {
  const file = configFile(place.folders)
  const loaded = await loadConfig(place.folders)
  if (!loaded.ok) {
    const remedy = 'Correct the file, then run caisson config check again.'
    return [
      { ...configuration, status: 'fail', seen: loaded.error, remedy },
      { ...key, status: 'warn', seen: 'unknown until the configuration can be read', remedy },
    ]
  }
  const facts = await inspectSections(loaded.value, place)
  const seen = existsSync(file) ? file : `${file} does not exist; the defaults apply`
  return [describeSections(seen, facts), describeModel(await inspectModel(loaded.value, place))]
}

/** @param where the file, and whether it exists */
function describeSections(where: string, facts: readonly ConfigFact[]): Finding {
  const wrong = facts.filter(({ problem }) => problem !== undefined)
  if (wrong.length === 0) return { ...configuration, status: 'ok', seen: where }
  const seen = [where, ...wrong.map(({ what, problem }) => `${what}: ${problem}`)].join('\n')
  return {
    ...configuration,
    status: wrong.some(({ stopsRuns }) => stopsRuns) ? 'fail' : 'warn',
    seen,
    remedy: mend,
  }
}

function describeModel({ seen, note, problem }: ConfigFact): Finding {
  if (problem !== undefined) return { ...key, status: 'warn', seen: `${seen}: ${problem}`, remedy: mend }
  return note === undefined ? { ...key, status: 'ok', seen } : { ...key, status: 'warn', seen, remedy: note }
}
