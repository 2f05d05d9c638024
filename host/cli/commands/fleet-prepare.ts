/** `caisson fleet prepare`: makes or upgrades a fleet's tables as their owner, and grants the hosts' role its rights. */
import { CaissonError } from '#specs/errors.ts'
import { readFleetAddress } from '../../fleet/address.ts'
import {
  type Forms,
  fleetSql,
  formsOf,
  type HostRole,
  type Prepared,
  prepareFleet,
} from '../../fleet/prepare.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import type { Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export interface PrepareFlags {
  readonly fleet?: string
  readonly fleetFile?: string
  readonly role?: string
  readonly removesRuns?: boolean
  readonly print?: boolean
  readonly json?: boolean
}

const noTables: Forms = { own: 0, queue: 0 }

export async function prepare(io: Io, flags: PrepareFlags): Promise<ExitCode> {
  const { fleet, fleetFile, print, json } = flags
  const role = roleOf(flags)
  const address = await readFleetAddress({
    env: io.env,
    ...(fleet === undefined ? {} : { argument: fleet }),
    ...(fleetFile === undefined ? {} : { file: fleetFile }),
  })
  if (print === true) {
    const sql = await fleetSql(address === undefined ? noTables : await formsOf(address), role)
    if (json === true) await writeJsonLine(io.stdout, { sql })
    else io.stdout.write(`${sql}\n`)
    return exitCodes.completed
  }
  if (address === undefined)
    throw new CaissonError('invalid_options', 'no database of a fleet is named', {
      remedy: 'set CAISSON_FLEET, or pass --fleet ADDRESS or --fleet-file FILE',
    })
  const prepared = await prepareFleet(address, role)
  if (json === true) await writeJsonLine(io.stdout, { fleet: address.shown, ...prepared })
  else io.stdout.write(`${linesOf(address.shown, prepared, role).join('\n')}\n`)
  return exitCodes.completed
}

/** PostgreSQL would shorten a longer one to 63 bytes. */
function roleOf({ role, removesRuns = false }: PrepareFlags): HostRole | undefined {
  if (role === undefined && removesRuns)
    throw new CaissonError('invalid_options', '--removes-runs names no role', {
      remedy: 'pass --role NAME too',
    })
  if (role === undefined) return undefined
  if (role !== '' && !role.includes('\0') && Buffer.byteLength(role) <= 63) return { name: role, removesRuns }
  throw new CaissonError('invalid_options', '--role is no name of a role', {
    remedy: 'use a name of 1 to 63 bytes',
  })
}

function linesOf(shown: string, { formBefore, form }: Prepared, role: HostRole | undefined): string[] {
  const tables =
    formBefore === undefined
      ? `made the tables, form ${form}`
      : formBefore === form
        ? `the tables have form ${form} already`
        : `upgraded the tables from form ${formBefore} to ${form}`
  return [
    `${sanitizeLine(shown)}: ${tables}`,
    ...(role === undefined
      ? [
          'No right was changed. Hosts can use this address. For a role that has only what hosts need: caisson fleet prepare --role NAME',
        ]
      : [
          `${sanitizeLine(role.name)} has the rights of a host${role.removesRuns ? ', which may remove ended runs' : ''}, and no others to these tables. The same as SQL: --print`,
        ]),
  ]
}
