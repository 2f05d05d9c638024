/** What happens to the hosts of a fleet and to their database, at random moments; one at a time for each host. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { PostgresServer } from '../../test/support/postgres.ts'
import type { Random } from '../soak/random.ts'
import type { FleetHost } from './fleet-host.ts'

export const causes = ['kill', 'freeze', 'cut', 'drain', 'full disk', 'restart of PostgreSQL'] as const
export type Cause = (typeof causes)[number]

/** Another host may have its runs after 10.5 s. */
const pastLeaseMs = [12_000, 25_000] as const
const hourMs = 3_600_000

export interface Fault {
  readonly cause: Cause
  /** Absent: the database. */
  readonly host?: FleetHost
  /** Time, ms since 1970. */
  readonly at: number
}

interface Target {
  readonly random: Random
  readonly host: FleetHost
  readonly database: PostgresServer
  /** Called at the moment of the fault. */
  readonly onFault: (fault: Fault) => void
}

/** Resolves when all is in order again. */
export async function strike(cause: Cause, { random, host, database, onFault }: Target): Promise<void> {
  const away = random.between(...pastLeaseMs)
  switch (cause) {
    case 'kill':
      onFault({ cause, host, at: Date.now() })
      await host.kill()
      await sleep(random.between(0, 15_000))
      return await host.start(drawSkew(random))
    case 'drain': {
      onFault({ cause, host, at: Date.now() })
      if (!(await host.drain())) throw new Error(`${host.name} did not end within a minute of SIGTERM`)
      return await host.start(drawSkew(random))
    }
    case 'freeze':
      onFault({ cause, host, at: Date.now() })
      host.freeze()
      await sleep(away)
      return host.thaw()
    case 'cut':
      onFault({ cause, host, at: Date.now() })
      host.network.cut()
      await sleep(away)
      return host.network.join()
    case 'full disk':
      onFault({ cause, host, at: Date.now() })
      await host.fillDisk()
      await sleep(random.between(2_000, 8_000))
      return await host.emptyDisk()
    case 'restart of PostgreSQL':
      onFault({ cause, at: Date.now() })
      await database.kill()
      await sleep(random.between(0, 2_000))
      return await database.restart()
  }
}

/** An hour ahead, an hour behind, or right. */
export function drawSkew(random: Random): number {
  return random.of([-hourMs, 0, 0, hourMs])
}
