// A run at work and its service, as the tests of the extension need them.
import type { AgentEvent } from '#specs/protocol/event.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { Host } from '../../host/index.ts'
import type { ServiceOptions } from '../../host/service/service.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runStart } from '../../host/test/support/run-values.ts'
import { readManifest } from '../../scripts/vscode-extension.ts'
import { serveHost } from '../service/support.ts'

const step = (id: string, needs: string[] = []): Plan['steps'][number] => ({
  ...{ id, title: `Do ${id}`, instructions: `Do ${id}`, needs, writes: [] },
  onFailure: 'abort',
})
export const plan: Plan = { goal: 'All of it', steps: [step('one'), step('two', ['one'])] }

/** The extension uses a service of its own version alone. */
export async function serve(host: Host, options: Partial<ServiceOptions> = {}) {
  return await serveHost(host, { version: readManifest().version, ...options })
}

/** A run at work that has a plan, with its service. Call it from within a test. */
export async function servedRun(prompt = 'Tidy the shop') {
  const run = await runAtWork()
  await run.record.host({ ...runStart, prompt })
  let count = 0
  const emit = async (events: readonly AgentEvent[], agentPath = 'root') => {
    for (const event of events) await run.record.agent(agentPath, ++count, event)
  }
  await emit([
    { type: 'plan-update', revision: 1, plan },
    { type: 'step-start', stepId: 'one' },
  ])
  const served = await serve(new Host({ env: run.env }))
  return { run, served, emit, home: run.env.CAISSON_HOME ?? '' }
}
