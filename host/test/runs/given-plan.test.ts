import { execFileSync } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { RunStore } from '../../journal/run-store.ts'
import { findGivenPlan, givenPlanOf, requireAgents } from '../../runs/given-plan.ts'

const plan = Plan.parse({ goal: 'Tidy up', steps: [{ id: 'a', title: 'A', instructions: 'do' }] })
const runId = `run-${'ab'.repeat(10)}`

async function store() {
  const folder = await temporaryFolder('given-plan')
  await mkdir(path.join(folder, 'runs'), { mode: 0o700 })
  return new RunStore({ runs: path.join(folder, 'runs'), locks: path.join(folder, 'locks') })
}

async function journal(runs: RunStore, revisions: readonly Plan[]): Promise<void> {
  const start: HostEvent = {
    type: 'run-start',
    prompt: 'please tidy',
    model: 'm',
    provider: 'p',
    directory: '/somewhere',
    limits: RunLimits.parse({}),
    imageKey: 'i',
    agentDigest: 'd',
  }
  await using record = await RunRecord.open(await runs.create(runId))
  await record.host(start)
  for (const [index, one] of revisions.entries())
    await record.agent('root', index + 1, { type: 'plan-update', revision: index + 1, plan: one })
}

describe('a plan that a run is handed', () => {
  it('is the last one of an earlier run, with its task, by id, beginning or last [A.11]', async () => {
    const runs = await store()
    const revised = { ...plan, goal: 'Tidy up better' }
    await journal(runs, [plan, revised])
    for (const name of [runId, 'abab', 'last'])
      expect(await findGivenPlan(runs, name, '/somewhere')).toEqual({
        plan: revised,
        from: runId,
        prompt: 'please tidy',
      })
  })

  it('is a file with a plan as JSON [A.11]', async () => {
    const runs = await store()
    const file = path.join(await temporaryFolder('plan'), 'plan.json')
    await writeFile(
      file,
      JSON.stringify({ goal: 'Tidy up', steps: [{ id: 'a', title: 'A', instructions: 'do' }] }),
    )
    expect(await findGivenPlan(runs, file)).toEqual({ plan, from: file })
  })

  it.each<[string, string | undefined, RegExp]>([
    ['is not JSON', '{oops', /plan\.json cannot run: not JSON/],
    ['is no plan', '{"goal":"g","steps":[{"id":"A"}]}', /steps\.0\.id: expected 1 to 32/],
    [
      'waits for itself',
      '{"goal":"g","steps":[{"id":"a","title":"A","instructions":"i","needs":["a"]}]}',
      /waits for itself/,
    ],
    ['is not there', undefined, /cannot be read .*name a run/],
  ])('is refused with the reason when it %s [A.11]', async (_name, text, words) => {
    const file = path.join(await temporaryFolder('plan'), 'plan.json')
    if (text !== undefined) await writeFile(file, text)
    await expect(findGivenPlan(await store(), file)).rejects.toThrow(words)
  })

  it('is refused at once where the file is a FIFO that nobody writes to [A.11]', async () => {
    const file = path.join(await temporaryFolder('plan'), 'plan.json')
    execFileSync('mkfifo', [file])
    await expect(findGivenPlan(await store(), file)).rejects.toThrow(/is not a file/)
  })

  it('is refused when it needs more sub-agents than its run may have, before any VM [A.07 A.11]', () => {
    const agents = ['a', 'b', 'c'].map((id) => ({ id, kind: 'agent', title: id, instructions: 'do' }))
    const given = givenPlanOf({ goal: 'g', steps: agents })
    expect(() => requireAgents(given, 2)).toThrow(/need 3 sub-agents .* where 2 can begin.*limits\.maxAgents/)
    expect(() => requireAgents(given, 3)).not.toThrow()
  })

  it('is refused of a run that had none, of a name that is nothing, and of a value that is none', async () => {
    const runs = await store()
    await journal(runs, [])
    await expect(findGivenPlan(runs, 'last', '/somewhere')).rejects.toThrow(/before it had a plan/)
    await expect(findGivenPlan(runs, 'nothing')).rejects.toThrow(/no run has this ID/)
    expect(() => givenPlanOf({ goal: 'g' })).toThrow(/the plan cannot run: steps/)
    expect(givenPlanOf({ goal: 'Tidy up', steps: [{ id: 'a', title: 'A', instructions: 'do' }] })).toEqual({
      plan,
      from: 'the application',
    })
  })
})
