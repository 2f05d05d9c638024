// The model's server takes no requests for hours: the run leaves its process and continues later. Real host, real agent, with
// a program in the place of QEMU.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { failure } from '#specs/testing/model-replies.ts'
import { perTier } from '#specs/testing/tier.ts'
import { Host } from '../../host/host.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { accompany, resumeRun, startRun } from './scenario.ts'
import { judge } from './verdict.ts'
import { type Outcome, wholeLines } from './world.ts'

let folder: string
let worlds: Worlds
let undisturbed: Outcome

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-model-limit-'))
  worlds = await Worlds.open(await installMachine(folder), folder)
  undisturbed = await worlds.run()
}, 120_000)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

/** Before which answer of the model: the number of calls that had ended. */
it.concurrent.each(perTier([2], [0, 1, 2, 3, 5]))(
  'a run whose model is limited for hours after %i calls says until when, and continues then [R.01 G.05]',
  async (calls) => {
    await using world = await worlds.openWorld()
    const run = await startRun(world.host, world.scene)
    const limit = failure(429, 'Rate limit reached, try again in 5 hours')
    let ended = 0
    if (calls === 0) world.refusal = limit
    worlds.watch(run.id, ({ type }, cut) => {
      if (type === 'tool-end' && cut === 'after' && ++ended === calls) world.refusal = limit
    })
    await accompany(world.host, run, world.scene)
    const end = await run.result()
    expect(end).toMatchObject({ outcome: 'failed', reason: 'model_unreachable' })
    expect(end.message).toMatch(
      /takes requests for scripted again after \d{4}-.*: HTTP 429: .* 5 hours\n.*caisson runs resume run-/,
    )
    expect((await world.host.runs.summary(run.id)).status).toBe('interrupted')
    const left = (await world.host.runs.read(run.id)).at(-1)?.event
    const said = left?.type === 'run-interrupt' ? left.message : ''
    expect([left?.type, said]).toEqual(['run-interrupt', end.message])
    const killedAfter = wholeLines(world.journalOf(run.id))

    world.refusal = undefined
    // Its own queue: that of the other address would not ask again for ten minutes.
    const url = world.env.CAISSON_LLM_URL?.replace('127.0.0.1', 'localhost')
    await using later = new Host({ env: { ...process.env, ...world.env, CAISSON_LLM_URL: url } })
    const next = await resumeRun(later, run.id, world.scene)
    await accompany(later, next, world.scene)
    const { outcome, message } = await next.result()
    const resumed = (await later.runs.read(run.id)).find(({ event }) => event.type === 'run-resume')?.event
    expect(resumed).toMatchObject({ message: said.split('\n')[0] })
    const result = await world.outcome({ runId: run.id, killedAfter, end: `${outcome}: ${message}` })
    expect(judge(result, undisturbed, { victim: 'host', afterMs: 0 })).toEqual([])
  },
)
