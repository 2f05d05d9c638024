// `caisson serve` of a fleet as a process of a test, with a state folder of its own.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import type { CliProcess, Place } from '../../host/test/support/cli.ts'

export interface ServedHost {
  readonly process: CliProcess
  readonly client: ServiceClient
  readonly hostId: string
}

/**
 * Starts it, and waits until it is one of the fleet.
 * @param place whose variable CAISSON_FLEET names the fleet
 * @param workspace that each host has
 */
export async function serveHost(
  place: Place,
  {
    workspace,
    files,
    slots = 1,
  }: { readonly workspace: string; readonly files: string; readonly slots?: number },
): Promise<ServedHost> {
  const started = place.start(
    ...['serve', '--port', '0', '--parallel-runs', String(slots)],
    ...['--fleet-files', files, '--allow-workspace', workspace],
  )
  const url = () => /listens on (http:\S+)/.exec(started.errors())?.[1]
  const hostId = () => /One of the fleet at \S+ as \S+ \((host-[0-9a-f]+)\)/.exec(started.errors())?.[1]
  await expect.poll(hostId, { timeout: 90_000, interval: 100 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  const client = new ServiceClient({ baseUrl: url() ?? '', token })
  return { process: started, client, hostId: hostId() ?? '' }
}
