/** What one run reaches through the host: its gateway, its egress and the gateway's own services, put together once. */
import type { HostEvent } from '#specs/protocol/event.ts'
import { createConnector } from '../egress/connect.ts'
import type { Egress } from '../egress/egress.ts'
import { type Access, RunEgress } from '../egress/run-egress.ts'
import { createOutward } from '../egress/serve-outward.ts'
import { createGateway, type Gateway, type GatewayServices } from '../gateway/gateway.ts'
import type { Recorder } from '../recording/recorder.ts'
import type { CappedLog } from './capped-log.ts'
import type { RunPlan } from './run-plan.ts'

export interface RunGateway {
  readonly gateway: Gateway
  readonly egress: Egress
}

export function openRunGateway(
  plan: RunPlan,
  log: CappedLog,
  recorder: Recorder,
  note: (event: HostEvent) => void,
): RunGateway {
  const { provider, runId, limits, recording } = plan
  const egress = new RunEgress({
    policy: plan.egress,
    access: nobody,
    connect: createConnector({ network: plan.network }),
    note,
  })
  const write = (level: 'info' | 'warn') => (fields: object, message: string) =>
    log.write({ at: Date.now(), from: 'gateway', level, message, ...fields })
  const gateway = createGateway({
    provider,
    runId,
    limits,
    services: servicesOf(egress),
    wrapUpstream: (server, key) => recorder.wrap(recording?.upstream() ?? server, key),
    onExchange: ({ status, durationMs, usage, estimated, error }) =>
      note({
        type: 'model-end',
        status,
        durationMs,
        usage,
        estimated,
        ...(error === undefined ? {} : { error }),
      }),
    onDenied: ({ target, reason }) => note({ type: 'egress-denied', target, reason }),
    logger: { info: write('info'), warn: write('warn') },
  })
  return { gateway, egress }
}

/** Every path under the name `gateway` but the model's, and everything that is not under it. */
function servicesOf(egress: Egress): GatewayServices {
  return { paths: {}, outward: createOutward(egress) }
}

const nobodyWords = 'nobody can be asked in this run; do without it and say so in your answer'
const nobody: Access = {
  granted: () => [],
  used: () => undefined,
  askFor: () => Promise.resolve({ ok: false, error: `refused: ${nobodyWords}` }),
  decide: () => Promise.resolve({ decision: 'deny', hint: nobodyWords }),
}
