/** What the turn loop takes of the processor for a turn, beside the floor by turns, and of memory for an agent. */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { AgentJob, AgentResult } from './agent-child.ts'
import { startTurnServer, type TurnServer } from './agent-server.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'

const warmUpSamples = repeats(3)
/** Conversations of one sample, and samples, by the turns of a conversation. */
const lengths = [
  { turns: 20, conversations: 4, samples: repeats(15) },
  { turns: 200, conversations: 1, samples: repeats(9) },
] as const
const agents = repeats(100)
const agentTurns = 5

export async function measureTurns(): Promise<Figures> {
  await using server = await startTurnServer()
  const loop = startChild('loop')
  const floor = startChild('floor')
  try {
    const figures: Record<string, unknown> = {}
    for (const length of lengths) Object.assign(figures, await measureLength(length, server, loop, floor))
    return figures
  } finally {
    loop.kill()
    floor.kill()
  }
}

async function measureLength(
  { turns, conversations, samples }: (typeof lengths)[number],
  server: TurnServer,
  loop: Child,
  floor: Child,
): Promise<Figures> {
  reportProgress(`${turns} turns of the loop`)
  const perTurn = async (child: Child): Promise<AgentResult & { ms: number }> => {
    let cpuMs = 0
    for (let count = 1; ; count++) {
      server.begin(turns)
      const done = await child.run({ kind: 'turns', baseUrl: server.baseUrl, turns })
      cpuMs += done.cpuMs
      if (count === conversations) return { ...done, ms: cpuMs / conversations / turns }
    }
  }
  const loopMs: number[] = []
  const floorMs: number[] = []
  for (let count = -warmUpSamples; count < samples; count++) {
    const [one, other] = [await perTurn(loop), await perTurn(floor)]
    if (one.text !== other.text || one.transcriptChars !== other.transcriptChars)
      throw new Error(`${turns} turns: loop and floor have different transcripts`)
    if (count < 0) continue
    loopMs.push(one.ms)
    floorMs.push(other.ms)
  }
  const [figure, floorFigure] = [figureOf(loopMs), figureOf(floorMs)]
  return {
    [`turn${turns}CpuMs`]: figure,
    [`floorTurn${turns}CpuMs`]: floorFigure,
    [`turn${turns}ToFloor`]: round(figure.p50 / floorFigure.p50),
  }
}

/** What is kept while all agents of a process wait for their last answer, by agent; and how far the process grows. */
export async function measureAgents(): Promise<Figures> {
  reportProgress(`${agents} agents of ${agentTurns} turns`)
  const usedKiB: number[] = []
  const rssKiB: number[] = []
  for (let sample = 0; sample < repeats(3); sample++) {
    const { used, rss } = await measureAgentsOnce()
    usedKiB.push(used / agents / 1024)
    rssKiB.push(rss / agents / 1024)
  }
  return { agentKiB: figureOf(usedKiB), agentRssKiB: figureOf(rssKiB) }
}

async function measureAgentsOnce(): Promise<{ used: number; rss: number }> {
  await using server = await startTurnServer()
  const child = startChild('loop')
  try {
    server.begin(agentTurns)
    await child.run({ kind: 'turns', baseUrl: server.baseUrl, turns: agentTurns })
    const before = await child.run({ kind: 'memory' })
    let waiting = 0
    const open = Promise.withResolvers<void>()
    const all = Promise.withResolvers<void>()
    server.begin(agentTurns, () => {
      if (++waiting === agents) all.resolve()
      return open.promise
    })
    const done = child.run({ kind: 'agents', baseUrl: server.baseUrl, turns: agentTurns, agents })
    await all.promise
    const during = await child.run({ kind: 'memory' })
    open.resolve()
    await done
    return { used: during.usedBytes - before.usedBytes, rss: during.rssBytes - before.rssBytes }
  } finally {
    child.kill()
  }
}

interface Child {
  readonly run: (job: AgentJob) => Promise<AgentResult>
  readonly kill: () => void
}

function startChild(kind: 'loop' | 'floor'): Child {
  const child = fork(new URL('./agent-child.ts', import.meta.url), [kind], {
    execArgv: ['--conditions=caisson-source', '--expose-gc'],
  })
  const died = once(child, 'exit').then((): never => {
    throw new Error('the benchmarked process died; its reason is above')
  })
  // Nobody minds once the figures are there.
  died.catch(() => undefined)
  let number = 0
  return {
    run: async (job) => {
      const own = ++number
      const answer = Promise.withResolvers<AgentResult>()
      const take = ({ number: answered, ...result }: AgentResult & { number: number }): void => {
        if (answered !== own) return
        child.off('message', take)
        answer.resolve(result)
      }
      child.on('message', take)
      child.send({ ...job, number: own })
      return await Promise.race([answer.promise, died])
    },
    kill: () => void child.kill(),
  }
}
