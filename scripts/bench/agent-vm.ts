/** Sub-agents in a VM: eight in parallel that write one file each, timed from the starting call to the last merge. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Host } from '../../host/host.ts'
import { reply } from '../../specs/testing/model-replies.ts'
import { type Script, startModelServer } from '../../specs/testing/model-server.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress } from './figures.ts'
import { makeFolder } from './workspace.ts'

const RUNS = repeats(5)
const AGENTS = 8

const step = { id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }
const spawns = Array.from({ length: AGENTS }, (_, index) => ({
  name: 'spawn_agent',
  arguments: { name: `agent-${index}`, brief: `WRITE file-${index}.txt` },
}))

/** One turn starts all; each has a turn that writes and one that answers. */
const script: Script = ({ messages }) => {
  const user = messages.find(({ role }) => role === 'user')?.content ?? ''
  const turn = messages.filter(({ role }) => role === 'assistant').length
  const file = /<instructions>\nWRITE (\S+)/.exec(user)?.[1]
  if (turn > 0) return reply({ text: 'done' })
  if (file !== undefined)
    return reply({ calls: [{ name: 'write_file', arguments: { path: file, content: `${file}\n` } }] })
  if (user.includes('<instructions>\nLEAD')) return reply({ calls: spawns })
  return reply({ calls: [{ name: 'submit_plan', arguments: { goal: 'Write', steps: [step] } }] })
}

export async function measureSubAgents(): Promise<Figures> {
  const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
  const workspace = path.join(home, 'work')
  await makeFolder(workspace)
  await using server = await startModelServer(script)
  const host = new Host({
    env: {
      ...process.env,
      CAISSON_HOME: path.join(home, 'state'),
      CAISSON_LLM_URL: server.baseUrl,
      CAISSON_LLM_KEY: 'none',
      CAISSON_MODEL: 'scripted',
    },
  })
  try {
    // After one run the process is warm and the template exists.
    await timeAgents(host, workspace)
    const times: number[] = []
    for (let index = 0; index < RUNS; index += 1) {
      reportProgress(`${AGENTS} sub-agents, run ${index + 1} of ${RUNS}`)
      times.push(await timeAgents(host, workspace))
    }
    return { subagents8Ms: figureOf(times) }
  } finally {
    await rm(home, { recursive: true })
  }
}

async function timeAgents(host: Host, workspace: string): Promise<number> {
  const limits = { maxParallelAgents: AGENTS, maxAgents: AGENTS }
  const run = await host.run({
    prompt: 'Write the files',
    workspace,
    approvals: { interactive: false },
    limits,
  })
  let beganAt = Number.NaN
  let endedAt = Number.NaN
  let merged = 0
  for await (const item of run.watch()) {
    if (item.source !== 'agent') continue
    const { event } = item
    if (event.type === 'tool-start' && event.tool === 'spawn_agent' && Number.isNaN(beganAt))
      beganAt = performance.now()
    if (event.type === 'tool-end' && event.tool === 'spawn_agent') endedAt = performance.now()
    if (event.type === 'agent-end') merged += event.merged
  }
  const { end } = await run.ended
  if (end?.outcome !== 'completed' || merged !== AGENTS)
    throw new Error(
      `expected ${AGENTS} files merged, saw ${merged}; the run ${end?.outcome}: ${end?.message}`,
    )
  return endedAt - beganAt
}
