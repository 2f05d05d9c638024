/** The routes of a fleet of hosts. All need the scope `admin`. */
import type { ReplyOf, RequestOf } from '#specs/service/route.ts'
import type { routes } from '#specs/service/routes.ts'
import { CaissonError, type FleetHost, type FleetMember } from '../index.ts'
import { Refusal } from './problems.ts'

/** As in `Handlers`. */
export type FleetHandlers = {
  readonly [N in 'getFleet' | 'drainHost' | 'moveRun']: (
    request: RequestOf<(typeof routes)[N]>,
  ) => Promise<{ readonly body: ReplyOf<(typeof routes)[N]> }>
}

/** @param member undefined: the service is in no fleet */
export function makeFleetHandlers(member: FleetMember | undefined): FleetHandlers {
  return {
    getFleet: async () => {
      const fleet = memberOf(member)
      const [hosts, runs, signals] = [await fleet.hosts(), await fleet.status(), await fleet.signals()]
      return { body: { hosts: hosts.map(hostResource), runs: { ...runs }, signals: plainSignals(signals) } }
    },
    drainHost: async ({ params: { host }, body: { undo = false } }) => {
      const fleet = memberOf(member)
      await requireHost(fleet, host)
      await orConflict(() => fleet.drainHost(host, { undo }))
      return { body: { hosts: (await hostsOf(fleet, host)).map(hostResource) } }
    },
    moveRun: async ({ params: { run: runId }, body: { host } }) => {
      const fleet = memberOf(member)
      if (host !== undefined) await requireHost(fleet, host)
      const state = await orConflict(() => fleet.move(runId, host))
      if (state === 'ended') throw new CaissonError('not_possible_now', `${runId} has ended`)
      return { body: { runId, state } }
    },
  }
}

/** @throws {Refusal} 409 */
function memberOf(member: FleetMember | undefined): FleetMember {
  if (member !== undefined) return member
  throw new Refusal(409, 'not_possible_now', 'this service is in no fleet', {
    remedy: 'start it with --fleet or CAISSON_FLEET, and --fleet-files',
  })
}

/** @throws {Refusal} 404 */
async function requireHost(fleet: FleetMember, host: string): Promise<void> {
  if ((await hostsOf(fleet, host)).length > 0) return
  throw new Refusal(404, 'not_found', `the fleet has no host ${JSON.stringify(host)}`, {
    remedy: 'list the hosts: GET /v1/fleet',
  })
}

async function hostsOf(fleet: FleetMember, host: string): Promise<FleetHost[]> {
  return (await fleet.hosts()).filter(({ hostId, name }) => hostId === host || name === host)
}

/** What a known host cannot do now: it is gone, drained or has no slots. @throws {Refusal} 409 */
async function orConflict<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const { code, message } = CaissonError.from(error)
    if (code !== 'invalid_options') throw error
    throw new Refusal(409, 'not_possible_now', message)
  }
}

function hostResource({ facts, ...host }: FleetHost) {
  return { ...host, facts: { ...facts, labels: [...facts.labels] } }
}

function plainSignals(signals: Awaited<ReturnType<FleetMember['signals']>>) {
  return { ...signals, slots: { ...signals.slots }, unservable: { ...signals.unservable } }
}
