// Sections of each turn in a run that another process continues: real host, real agent, with a program in the place of QEMU.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { failure } from '#specs/testing/model-replies.ts'
import { Host } from '../../host/host.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { accompany, resumeRun, startRun } from './scenario.ts'

const clock = (text: string) => ({ clock: { text: () => text, per: 'turn' as const } })

it('a run that another process continues has the sections of each turn that its application gives again, and no others [S0.05 R.01]', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'caisson-turn-sections-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  await using worlds = await Worlds.open(await installMachine(folder), folder)
  await using world = await worlds.openWorld()
  const { host, scene } = world
  const asked: string[] = []
  const answers = world.answers
  world.answers = (request) => {
    asked.push(JSON.stringify(request.messages))
    return answers(request)
  }
  const run = await startRun(host, scene, clock('it is noon'))
  let ended = 0
  worlds.watch(run.id, ({ type }, cut) => {
    if (type === 'tool-end' && cut === 'after' && ++ended === 1)
      world.refusal = failure(429, 'try again in 5 hours')
  })
  await accompany(host, run, scene)
  expect((await run.result()).reason).toBe('model_unreachable')
  expect((await host.runs.summary(run.id)).status).toBe('interrupted')
  expect(asked.some((text) => text.includes('it is noon'))).toBe(true)

  world.refusal = undefined
  asked.length = 0
  const url = world.env.CAISSON_LLM_URL?.replace('127.0.0.1', 'localhost')
  await using later = new Host({ env: { ...process.env, ...world.env, CAISSON_LLM_URL: url } })
  const next = await resumeRun(later, run.id, scene, clock('it is midnight'))
  await accompany(later, next, scene)
  expect(await next.result()).toMatchObject({ outcome: 'completed' })
  // A turn that was under way keeps what it was given.
  const begun = asked.filter((text) => /do (first|second|last)/.test(text))
  expect(begun.length).toBeGreaterThan(0)
  expect(begun.filter((text) => !text.includes('it is midnight'))).toEqual([])
}, 120_000)
