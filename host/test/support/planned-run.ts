/** The settings of a run that has no image, for tests that start no VM. */
import path from 'node:path'
import { RunLimits } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Config } from '../../config/schema.ts'
import { Host } from '../../host.ts'
import { directNetwork } from '../../net/network.ts'
import { offlineProvider } from '../../providers/providers.ts'
import type { PlannedRun } from '../../runs/resolved-run.ts'
import { Secrets } from '../../secrets/secrets.ts'
import { prepareFolders } from '../../state/folders.ts'
import { runId } from './run-values.ts'

const noKey = async () => ({ ok: false, error: 'there are no keys here' }) as const

/** Call it from within a test. */
export async function plannedRun(): Promise<{ plan: PlannedRun; runs: Host['runs'] }> {
  const home = await temporaryFolder('planned')
  const { folders, runs } = new Host({ env: { HOME: home, CAISSON_HOME: path.join(home, 'state') } })
  await prepareFolders(folders)
  const plan: PlannedRun = {
    ...{ runId, folders, directory: home, prompt: 'x', mode: 'work', include: [], vm: {}, keep: false },
    prepareMachine: () => Promise.reject(new Error('there is no VM here')),
    config: Config.parse({}),
    network: directNetwork,
    egress: { rules: [], otherwise: 'deny' },
    secrets: new Secrets({}, noKey),
    resolveKey: noKey,
    provider: offlineProvider(false),
    approvePlan: false,
    limits: RunLimits.parse({}),
    approvals: { mode: 'none', rules: [], interactive: false },
  }
  return { plan, runs }
}
