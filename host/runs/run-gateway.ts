/** The gateway of one run: what goes through it is journaled and logged. */
import type { HostEvent } from '#specs/protocol/event.ts'
import { createGateway, type Gateway } from '../gateway/gateway.ts'
import type { CappedLog } from './capped-log.ts'
import type { RunPlan } from './run-plan.ts'

export function openRunGateway(
  { provider, runId, limits }: RunPlan,
  log: CappedLog,
  note: (event: HostEvent) => void,
): Gateway {
  const write = (level: 'info' | 'warn') => (fields: object, message: string) =>
    log.write({ at: Date.now(), from: 'gateway', level, message, ...fields })
  return createGateway({
    provider,
    runId,
    limits,
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
}
