/**
 * A run whose QEMU is killed: from the journal's line that it continues until its next call starts in the new VM. Beside
 * it the start of the same run, until its first call.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Host } from '../../host/host.ts'
import { reply } from '../../specs/testing/model-replies.ts'
import { type Script, startModelServer } from '../../specs/testing/model-server.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import { makeFolder } from './workspace.ts'

const RUNS = repeats(4)
/** As often as a run continues by itself. */
const LOSSES = 3

const turns = [
  { name: 'run_bash', arguments: { command: 'echo one >> log.txt' } },
  { name: 'run_bash', arguments: { command: 'sleep 300' } },
]

const script: Script = ({ messages }) => {
  const next = turns[messages.filter(({ role }) => role === 'tool').length]
  return next === undefined ? reply({ text: 'done' }) : reply({ calls: [next] })
}

export async function measureResume(): Promise<Figures> {
  const home = await mkdtemp(path.join(tmpdir(), 'caisson-bench-'))
  const workspace = path.join(home, 'work')
  await makeFolder(workspace)
  await using server = await startModelServer(script)
  const env = {
    ...process.env,
    CAISSON_HOME: path.join(home, 'state'),
    CAISSON_LLM_URL: server.baseUrl,
    CAISSON_LLM_KEY: 'none',
    CAISSON_MODEL: 'scripted',
  }
  const resumes: number[] = []
  const starts: number[] = []
  try {
    await using host = new Host({ env })
    for (let index = 0; index <= RUNS; index += 1) {
      reportProgress(`runs whose VM is killed: ${index} of ${RUNS}`)
      const { startMs, resumeMs } = await timeRun(host, workspace)
      // The first makes the template.
      if (index === 0) continue
      starts.push(startMs)
      resumes.push(...resumeMs)
    }
  } finally {
    await rm(home, { recursive: true, force: true, maxRetries: 5 })
  }
  const [resume, start] = [figureOf(resumes), figureOf(starts)]
  return { resumeMs: resume, runToCallMs: start, resumeToStart: round(resume.p50 / start.p50) }
}

/** Kills the VM each time its second call has started. */
async function timeRun(host: Host, workspace: string): Promise<{ startMs: number; resumeMs: number[] }> {
  const run = await host.run({ prompt: 'Log it', workspace, approvals: { interactive: false } })
  const resumeMs: number[] = []
  let startMs = Number.NaN
  let beganAt = Number.NaN
  let resumedAt: number | undefined
  for await (const item of run.watch()) {
    if (item.source === 'delta') continue
    const { event, at } = item
    if (event.type === 'run-start') beganAt = at
    if (event.type === 'run-resume') resumedAt = at
    if (event.type !== 'tool-start') continue
    if (Number.isNaN(startMs)) startMs = at - beganAt
    if (resumedAt !== undefined) resumeMs.push(at - resumedAt)
    const isLast = resumeMs.length === LOSSES
    if (isLast) await run.cancel({ now: true })
    else if (event.arguments.includes('sleep')) await killVm(host, run.id)
  }
  return { startMs, resumeMs }
}

async function killVm(host: Host, runId: string): Promise<void> {
  const vm = await host.vms.find(runId)
  const { pid } = vm.info
  process.kill(pid, 'SIGKILL')
}
