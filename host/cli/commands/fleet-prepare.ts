/** `caisson fleet prepare`: makes or upgrades a fleet's tables as their owner, and grants the hosts' role its rights. */
import { CaissonError } from '#specs/errors.ts'
import { readFleetAddress } from '../../fleet/address.ts'
import { type Forms, fleetSql, formsOf, type Prepared, prepareFleet } from '../../fleet/prepare.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import type { Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export interface PrepareFlags {
  readonly fleet?: string
  readonly fleetFile?: string
  readonly role?: string
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
function roleOf({ role }: PrepareFlags): string | undefined {
  if (role === undefined) return undefined
  if (role !== '' && !role.includes('\0') && Buffer.byteLength(role) <= 63) return role
  throw new CaissonError('invalid_options', '--role is no name of a role', {
    remedy: 'use a name of 1 to 63 bytes',
  })
}

function linesOf(shown: string, { formBefore, form, grants }: Prepared, role: string | undefined): string[] {
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
          'Rights of roles are as before. Hosts may use this role too; for one with fewer rights: caisson fleet prepare --role NAME',
        ]
      : [
          `${sanitizeLine(role)} has the rights of a host:`,
          ...grants.map((one) => `  ${sanitizeLine(one)}`),
        ]),
  ]
}
