// A host link and an agent link over ports in memory, and a guest that can be killed and replaced.
import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import type { Completion } from '#specs/protocol/task.ts'
import { LinkedPort, type PortFaults } from '#specs/testing/linked-port.ts'
import { type AgentHandlers, type HostLink, serveHost } from '../../agent/link/host-link.ts'
import {
  type AgentLink,
  type AgentLinkOptions,
  type LinkHandlers,
  openAgentLink,
} from '../../host/guest/agent-link.ts'

/** Times that make a test quick; every silence is noticed soon. */
export const quickTimings = {
  heartbeatIntervalMs: 100,
  heartbeatTimeoutMs: 1_000,
  startTimeoutMs: 2_000,
  reconnectTimeoutMs: 5_000,
  firstSessionTimeoutMs: 5_000,
  preambleIntervalMs: 200,
  flapMaxCount: 1_000,
  flapWindowMs: 60_000,
}
/** For many links at once, where an answer takes longer. */
export const patientTimings = {
  ...quickTimings,
  heartbeatTimeoutMs: 3_000,
  startTimeoutMs: 10_000,
  reconnectTimeoutMs: 45_000,
  firstSessionTimeoutMs: 45_000,
  preambleIntervalMs: 2_000,
}

const quickGuest = {
  requestIntervalMs: 50,
  requestMaxMs: 50,
  reopenMinMs: 1,
  reopenMaxMs: 5,
  silenceBeats: 50,
  quietBeats: 50,
}

export interface Seen {
  events: string[]
  numbers: number[]
  deltas: string[]
  completions: Completion[]
  approvals: string[]
  logs: string[]
  sessions: { number: number; resumed: boolean }[]
  ends: { reason: string; message: string }[]
  lost: string[]
  bugs: unknown[]
}

export interface World extends AsyncDisposable {
  rpc: LinkedPort
  http: LinkedPort
  link: AgentLink
  seen: Seen
  /** Starts an agent process; the one before is dead. `cutAfterBytes` bounds what it can still say. */
  startGuest(options?: {
    handlers?: Partial<AgentHandlers>
    cutAfterBytes?: number
    processId?: string
    /** Default: the ports in memory. */
    openRpc?: () => Promise<Duplex>
    openHttp?: () => Promise<Duplex>
    timings?: Partial<typeof quickGuest>
    onQuiet?: (quiet: boolean) => void
  }): HostLink
}

export function createWorld(
  options: Partial<Omit<AgentLinkOptions, 'handlers'>> & {
    handlers?: Partial<LinkHandlers>
    faults?: PortFaults
    /** Puts something between the host's link and a port. */
    wrap?: (name: 'rpc' | 'http', port: Duplex) => Duplex
  } = {},
): World {
  const rpc = new LinkedPort(options.faults)
  const http = new LinkedPort(options.faults)
  const seen: Seen = {
    events: [],
    numbers: [],
    deltas: [],
    completions: [],
    approvals: [],
    logs: [],
    sessions: [],
    ends: [],
    lost: [],
    bugs: [],
  }
  const { handlers, faults: _faults, wrap = (_name, port) => port, timings, ...rest } = options
  const link = openAgentLink({
    rpc: wrap('rpc', rpc.host),
    http: wrap('http', http.host),
    onStream: (stream) => stream.close(),
    onSessionStart: ({ number, resumed }) => seen.sessions.push({ number, resumed }),
    onSessionEnd: ({ reason, message }) => seen.ends.push({ reason, message }),
    onAgentLost: ({ message }) => seen.lost.push(message),
    onBug: (_method, cause) => seen.bugs.push(cause),
    ...rest,
    timings: { ...quickTimings, ...timings },
    handlers: {
      onEvent: (_runId, { n, event }) => {
        seen.numbers.push(n)
        seen.events.push(event.type === 'note' ? event.text : event.type)
      },
      onDelta: ({ deltas }) =>
        seen.deltas.push(...deltas.map((delta) => ('text' in delta ? delta.text : ''))),
      requestApproval: async ({ approvalId }) => {
        seen.approvals.push(approvalId)
        return { ok: true, value: { decision: 'allow' } }
      },
      completeTask: async (done) => {
        seen.completions.push(done)
        return { ok: true, value: {} }
      },
      onLog: ({ message }) => seen.logs.push(message),
      ...handlers,
    },
  })
  let guest: HostLink | null = null
  return {
    rpc,
    http,
    link,
    seen,
    startGuest({
      handlers: own,
      cutAfterBytes,
      processId = randomBytes(16).toString('hex'),
      openRpc,
      openHttp = async () => http.openGuest(),
      timings: guestTimings,
      onQuiet,
    } = {}) {
      guest?.close()
      let opened = 0
      // Only the first opening is cut, so that the agent can come back.
      const openCut = async (): Promise<Duplex> =>
        rpc.openGuest(opened++ === 0 && cutAfterBytes !== undefined ? { cutAfterBytes } : {})
      guest = serveHost({
        openRpc: openRpc ?? openCut,
        openHttp,
        processId,
        describe: () => ({ tools: ['read_file'], restarts: 0 }),
        timings: { ...quickGuest, ...guestTimings },
        ...(onQuiet === undefined ? {} : { onQuiet }),
        handlers: {
          ...agreeable,
          'task/submit': async ({ task }) => {
            if (started.runId === null) started.beginRun(task.runId)
            return done()
          },
          ...own,
        },
      })
      const started = guest
      return started
    },
    async [Symbol.asyncDispose]() {
      guest?.close()
      await link[Symbol.asyncDispose]()
    },
  }
}

const done = async () => ({ ok: true, value: {} }) as const
const agreeable: Omit<AgentHandlers, 'task/submit'> = {
  'workspace/open': done,
  'workspace/reset': done,
  'workspace/look': async () => ({ ok: true, value: { paths: [], isPartial: false } }),
  'workspace/collect': async () => ({ ok: true, value: { entries: 0, contentBytes: 0 } }),
  'task/cancel': done,
  'task/cancelAgent': done,
  'task/steer': done,
  'task/pause': done,
  'task/hold': done,
  'task/checkpoint': async () => ({ ok: true, value: { outcome: 'off' } }),
  'shell/open': done,
  'forward/open': done,
}
