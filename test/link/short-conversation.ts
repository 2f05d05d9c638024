// A conversation of both links with one of each kind of message, short enough to be cut at each of its bytes.
import { once } from 'node:events'
import type { ServerHttp2Stream } from 'node:http2'
import type { Duplex } from 'node:stream'
import { taskSteer, workspaceCollect, workspaceOpen } from '#specs/protocol/methods.ts'
import type { HostLink } from '../../agent/link/host-link.ts'
import { HttpSessionLostError } from '../../agent/link/http.ts'
import { completion, note, runId, task } from '../../host/test/support/run-values.ts'
import type { Conversation, ConversationFaults, PortName } from './conversation.ts'
import { FaultyPort } from './faulty-port.ts'
import { createWorld, patientTimings } from './support.ts'

const timeoutMs = 60_000
const ids = { runId, agentPath: 'root', stepId: 's', callId: 'c' }
const approval = { ...ids, approvalId: 'a', tool: 'delete_file', arguments: '{}', preview: '' }
const hook = {
  runId,
  agentPath: 'root',
  stepId: 's',
  hookId: 'h',
  subject: { point: 'before-step', title: 't', instructions: 'i' },
} as const
const toolCall = { ...ids, tool: 'order', arguments: '{}' }
const never = new AbortController().signal
const answerPieces = ['one ', 'two ', 'three']
const changes = 'a change set'

/** @throws when it does not end in time */
export async function converseShortly(faults: ConversationFaults = {}): Promise<Conversation> {
  const effects = { approvals: 0, hooks: 0, calls: 0, checkpoints: 0, opened: 0, steered: 0 }
  const counted = (effect: keyof typeof effects): void => {
    effects[effect]++
  }
  let collected = ''
  let requests = 0
  let ended = false
  const isOver = (): boolean => ended
  const ports: Partial<Record<PortName, FaultyPort>> = {}
  const guestSides: Partial<Record<PortName, Duplex>> = {}
  const onStream = (stream: ServerHttp2Stream, headers: Record<string, unknown>): void => {
    requests++
    void serve(stream, String(headers[':path'])).catch(() => stream.destroy())
  }
  const serve = async (stream: ServerHttp2Stream, path: string): Promise<void> => {
    const body: Buffer[] = []
    for await (const chunk of stream as AsyncIterable<Buffer>) body.push(chunk)
    if (path === '/changes') collected = Buffer.concat(body).toString()
    stream.respond({ ':status': 200 })
    if (path === '/model') for (const piece of answerPieces) stream.write(piece)
    stream.end()
  }
  await using world = createWorld({
    onStream,
    timings: patientTimings,
    wrap: (name, port) => {
      const onCut = (): void => {
        if (faults.renewedBy === 'guest') guestSides[name]?.destroy()
        else world.link.restartSession('cut')
      }
      const wrapped = new FaultyPort(port, { onCut, ...faults[name] })
      ports[name] = wrapped
      return wrapped
    },
    handlers: {
      requestApproval: async () => {
        counted('approvals')
        return { ok: true, value: { decision: 'deny' } }
      },
      runHook: async () => {
        counted('hooks')
        return { ok: true, value: { decision: 'allow' } }
      },
      callTool: async () => {
        counted('calls')
        return { ok: true, value: { ok: true, output: 'ordered' } }
      },
      makeCheckpoint: async () => {
        counted('checkpoints')
        return { ok: true, value: { made: true } }
      },
    },
  })
  const open = (name: PortName): Duplex => {
    const side = world[name].openGuest()
    guestSides[name] = side
    return side
  }
  const steered = new Set<string>()
  const guest: HostLink = world.startGuest({
    timings: { requestIntervalMs: 200, requestMaxMs: 1_000 },
    openRpc: async () => open('rpc'),
    openHttp: async () => open('http'),
    handlers: {
      'task/steer': async ({ messageId }) => {
        if (!steered.has(messageId)) counted('steered')
        steered.add(messageId)
        return { ok: true, value: {} }
      },
      'workspace/collect': async () => {
        await repeated(isOver, () => send(guest, '/changes', changes))
        return { ok: true, value: { entries: 1, contentBytes: changes.length } }
      },
    },
  })
  const work = async (): Promise<{ answers: unknown[]; text: string }> => {
    const answers: unknown[] = [
      await world.link.request(workspaceOpen, {}),
      await world.link.submitTask(task),
    ]
    await guest.emitEvent(runId, 'root', note('one'))
    guest.emitDelta(runId, 'root', { type: 'text-delta', stepId: 's', turn: 1, offset: 0, text: 'hm' })
    const text = await repeated(isOver, () => send(guest, '/model', 'a question'))
    await guest.emitEvent(runId, 'root', note('two'))
    answers.push(
      ...(await Promise.all([
        guest.requestApproval(approval, never),
        guest.runHook(hook, never),
        guest.callTool(toolCall, never),
        world.link.request(taskSteer, { runId, messageId: 'm', text: 'quick' }),
      ])),
    )
    answers.push(await guest.makeCheckpoint({ runId, checkpointId: 'k' }))
    await guest.emitEvent(runId, 'root', note('three'))
    answers.push(await guest.complete(completion))
    answers.push(await world.link.request(workspaceCollect, { runId }))
    return { answers, text }
  }
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => late.reject(new Error(`no end: ${JSON.stringify({ ...effects, ...world.seen })}`)),
    timeoutMs,
  )
  const closed = world.link.closed.then(({ message }): never => {
    throw new Error(`the link ended: ${message}`)
  })
  closed.catch(() => undefined)
  try {
    const { answers, text } = await Promise.race([work(), closed, late.promise])
    const { numbers, events, completions, lost, bugs, deltas, sessions } = world.seen
    return {
      outcome: {
        outcome: JSON.stringify(answers),
        summary: text,
        files: Object.fromEntries(Object.entries(effects).map(([name, count]) => [name, String(count)])),
        work: events,
        approvals: [],
        changes: [collected],
        completions: completions.length,
        // A delta may be lost, and is never doubled.
        isCounted: numbers.every((n, index) => n === index + 1) && deltas.length <= 1,
        bugs: [...lost, ...bugs.map(String)],
      },
      bytes: {
        rpc: { 'to-host': 0, 'to-guest': 0, ...ports.rpc?.passed },
        http: { 'to-host': 0, 'to-guest': 0, ...ports.http?.passed },
      },
      sessions: sessions.length,
      requests,
      faults: (ports.rpc?.done.length ?? 0) + (ports.http?.done.length ?? 0),
    }
  } finally {
    ended = true
    clearTimeout(timer)
  }
}

async function send(guest: HostLink, path: string, body: string): Promise<string> {
  const stream = await guest.http.openStream({ ':method': 'POST', ':path': path })
  stream.end(body)
  let text = ''
  for await (const chunk of stream) text += String(chunk)
  if (stream.rstCode !== 0 || stream.aborted) throw new HttpSessionLostError('reset')
  if (!stream.destroyed) await once(stream, 'close')
  if (path === '/model' && text !== answerPieces.join('')) throw new Error(`half an answer: ${text}`)
  return text
}

/** What both the model's client and the host do with a lost session; after the end there is no other. */
async function repeated(isOver: () => boolean, work: () => Promise<string>): Promise<string> {
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (isOver() || !(error instanceof HttpSessionLostError)) throw error
    }
  }
}
