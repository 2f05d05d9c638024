// The link to a real VM, cut about twenty times during one run: both ports, both directions, at bytes that are drawn.
import type { ServerHttp2Stream } from 'node:http2'
import { expect, it } from 'vitest'
import { decodeChanges } from '#specs/node/change-stream.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { workspaceCollect, workspaceOpen } from '#specs/protocol/methods.ts'
import { type Completion, Task } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { createGateway } from '../../host/gateway/gateway.ts'
import { openAgentLink } from '../../host/guest/agent-link.ts'
import { offlineProvider } from '../../host/providers/providers.ts'
import { warmUp } from '../../host/runs/guest/warm-up.ts'
import { resolveFolders } from '../../host/state/folders.ts'
import { testVmOptions } from '../../host/test/support/warm-vm.ts'
import { openVm } from '../../host/vm/open-vm.ts'
import type { Vm } from '../../host/vm/vm.ts'
import { createDraw } from '../link/draw.ts'
import { FaultyPort } from '../link/faulty-port.ts'

const runId = `run-${'0'.repeat(19)}7`
const prompt =
  "Create a.txt with the content 'a' and create b.txt with the content 'b' and run the command `for i in 1 2 3 4 5 6; do echo line-$i; sleep 0.4; done; echo done > c.txt`"
const seed = 20_261_124
const cutsWanted = 20
/** Bytes to the next cut at most. A request to the model has about 10,000, and is sent four times at most. */
const nextCutMaxBytes = {
  rpc: { 'to-host': 3_000, 'to-guest': 600 },
  http: { 'to-host': 40_000, 'to-guest': 6_000 },
}

it('loses nothing and doubles nothing in a real VM however often its link is cut [R.02, C.03]', async () => {
  const home = await temporaryFolder('home')
  const folders = resolveFolders({ ...process.env, CAISSON_HOME: home })
  const options = await testVmOptions(folders)
  await openVm(options, { warmUp }, async ({ vm, origin }) => {
    await using world = openWorld(vm, origin.from === 'template')
    const { link, seen } = world
    expect(await link.ready({ timeoutMs: 60_000 })).toMatchObject({ ok: true })
    await vm.fresh
    expect(await link.request(workspaceOpen, {})).toMatchObject({ ok: true })
    world.cutOnAndOn()
    const task = Task.parse({ runId, prompt, model: 'caisson/offline', limits: {} })
    expect(await link.submitTask(task)).toMatchObject({ ok: true })
    const completion = await world.completion
    expect(await link.request(workspaceCollect, { runId })).toMatchObject({ ok: true })
    console.log(JSON.stringify({ seed, cuts: seen.cuts, sessions: seen.sessions, requests: seen.requests }))
    expect(completion).toMatchObject({ outcome: 'completed' })
    expect(seen.cuts).toBeGreaterThan(cutsWanted / 3)
    expect(seen.events.map(({ n }) => n)).toEqual(seen.events.map((_, index) => index + 1))
    const outputs = seen.events.flatMap(({ event }) => (event.type === 'tool-end' ? [event.output] : []))
    expect(outputs).toHaveLength(3)
    for (let line = 1; line <= 6; line++)
      expect(outputs.join('').split(`line-${line}\n`), outputs.join('')).toHaveLength(2)
    expect(seen.changes).toEqual(['a.txt a', 'b.txt b', 'c.txt done\n'])
    expect([seen.completions, seen.faults]).toEqual([1, []])
    await vm.stop()
  })
})

function openWorld(vm: Vm, cloned: boolean) {
  const draw = createDraw(seed)
  const seen = {
    cuts: 0,
    sessions: 0,
    requests: 0,
    completions: 0,
    events: [] as { n: number; event: AgentEvent }[],
    changes: [] as string[],
    faults: [] as string[],
  }
  let isCutting = false
  const cutNext = (): void => {
    if (!isCutting) return
    // Whichever comes first; the others come in later sessions.
    for (const name of ['rpc', 'http'] as const)
      for (const direction of ['to-host', 'to-guest'] as const)
        if (!ports[name].isWaiting(direction))
          ports[name].add({ kind: 'cut', direction }, draw(nextCutMaxBytes[name][direction]))
  }
  const onCut = (): void => {
    if (++seen.cuts >= cutsWanted) isCutting = false
    link.restartSession('cut')
  }
  const ports = { rpc: new FaultyPort(vm.rpc, { onCut }), http: new FaultyPort(vm.http, { onCut }) }
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens: 10_000_000 },
    onModelEvent: ({ type }) => {
      if (type === 'model-start') seen.requests++
    },
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
  const receive = async (stream: ServerHttp2Stream): Promise<void> => {
    const received: string[] = []
    for await (const { entry, content } of decodeChanges(stream as AsyncIterable<Uint8Array>)) {
      let text = ''
      for await (const piece of content) text += Buffer.from(piece).toString()
      if (entry.kind === 'file') received.push(`${entry.path} ${text}`)
    }
    seen.changes = received.sort()
    stream.respond({ ':status': 204 }, { endStream: true })
  }
  const completed = Promise.withResolvers<Completion>()
  const link = openAgentLink({
    cloned,
    ...ports,
    probe: () => vm.qmp.probe(),
    timings: { flapMaxCount: cutsWanted * 2 },
    onStream: (stream, headers) => {
      if (headers[':path'] === `/changes/${runId}`) receive(stream).catch(() => stream.close())
      else gateway.handleStream(stream, headers)
    },
    onSessionStart: () => {
      seen.sessions++
      cutNext()
    },
    onAgentLost: ({ message }) => {
      seen.faults.push(message)
      completed.reject(new Error(message))
    },
    onBug: (method, cause) => seen.faults.push(`${method}: ${String(cause)}`),
    handlers: {
      onEvent: (_runId, { n, event }) => void seen.events.push({ n, event }),
      onDelta: () => undefined,
      requestApproval: async () => ({ ok: true, value: { decision: 'allow' } }),
      completeTask: async (completion) => {
        seen.completions++
        completed.resolve(completion)
        return { ok: true, value: {} }
      },
      onLog: () => undefined,
    },
  })
  return {
    link,
    seen,
    completion: completed.promise,
    cutOnAndOn: (): void => {
      isCutting = true
      cutNext()
    },
    [Symbol.asyncDispose]: async (): Promise<void> => {
      await link[Symbol.asyncDispose]()
      await gateway.close()
    },
  }
}
