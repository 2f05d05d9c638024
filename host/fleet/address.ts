/**
 * Where the database of a fleet is. The address may hold a password, so it leaves this file for the database's driver alone:
 * messages have the address without it. Refuses a password in a command line, and an unprotected connection over a network.
 */
import { constants } from 'node:fs'
import { access, readFile } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'

/** Where an address may come from; the first that is there counts. */
export interface FleetAddressSource {
  /** Of the command line, where other users see it. */
  readonly argument?: string
  /** Path of a file whose first line is the address. */
  readonly file?: string
  /** `CAISSON_FLEET` has the address. */
  readonly env: Readonly<Record<string, string | undefined>>
}

export interface FleetAddress {
  /** For the driver. It may hold a password. */
  readonly connection: string
  /** For people: without passwords and options. */
  readonly shown: string
  /** What no message may hold. */
  readonly secrets: readonly string[]
}

/** Names of options of an address whose values are secret. */
const secretOptions = ['password', 'sslpassword']
const verified = ['require', 'verify-ca', 'verify-full'] as const
const forms = 'expected postgres://USER@HOST:PORT/DATABASE'

/** Undefined: there is none. @throws {CaissonError} `invalid_options`, without the address */
export async function readFleetAddress(source: FleetAddressSource): Promise<FleetAddress | undefined> {
  const { argument, file, env } = source
  if (argument !== undefined) {
    const address = parseFleetAddress(argument, '--fleet')
    if (address.secrets.length === 0) return address
    throw new CaissonError(
      'invalid_options',
      '--fleet holds a password, which every user of this machine can read',
      {
        remedy:
          'leave it out, and set CAISSON_FLEET, PGPASSWORD or PGPASSFILE, or pass --fleet-file FILE with the whole address',
      },
    )
  }
  if (file !== undefined) {
    const text = await readFile(file, 'utf8').catch((error: unknown) => {
      throw new CaissonError('invalid_options', `--fleet-file ${file} cannot be read: ${reasonOf(error)}`)
    })
    return parseFleetAddress(text.split('\n')[0]?.trim() ?? '', `the first line of ${file}`)
  }
  const { CAISSON_FLEET: given } = env
  return given === undefined || given === '' ? undefined : parseFleetAddress(given, 'CAISSON_FLEET')
}

/**
 * @param from what has it, for messages
 * @throws {CaissonError} `invalid_options`, without the address
 */
export function parseFleetAddress(text: string, from: string): FleetAddress {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !['postgres:', 'postgresql:'].includes(url.protocol))
    throw new CaissonError('invalid_options', `${from} is no address of PostgreSQL; ${forms}`)
  const { hostname, username, password, port, pathname, searchParams, protocol } = url
  // The driver takes the last of several.
  const host = searchParams.getAll('host').at(-1) ?? decode(hostname, from)
  // The driver would take PGHOST, and nothing here says how a connection to that is protected.
  if (host === '') throw new CaissonError('invalid_options', `${from} names no host; ${forms}`)
  protect(url, host, from)
  const user = username || searchParams.get('user') || ''
  const place = `${host}${port === '' ? '' : `:${port}`}${pathname}`
  const options = secretOptions.flatMap((name) => searchParams.getAll(name))
  return {
    connection: url.href,
    shown: `${protocol}//${user === '' ? '' : `${user}@`}${place}`,
    secrets: [password, decode(password, from), ...options].filter((one) => one !== ''),
  }
}

/**
 * `require` and `verify-ca` become `verify-full`: with `psql` they accept certificates for other names, or any at all.
 * @throws {CaissonError} `invalid_options`
 */
function protect({ searchParams }: URL, host: string, from: string): void {
  const mode = searchParams.getAll('sslmode').at(-1)
  if (mode === undefined) {
    if (isLocal(host)) return
    throw new CaissonError(
      'invalid_options',
      `${from} does not say how the connection to ${host} is protected`,
      {
        remedy: 'add ?sslmode=verify-full, or ?sslmode=disable in a network that nobody else can read',
      },
    )
  }
  if (!(['disable', ...verified] as readonly string[]).includes(mode))
    throw new CaissonError(
      'invalid_options',
      `${from} has an sslmode that does not say whether the connection is protected`,
      {
        remedy: 'write sslmode=verify-full or sslmode=disable',
      },
    )
  // It would make the driver weaken the modes.
  searchParams.delete('uselibpqcompat')
  if (mode === 'disable') return
  searchParams.set('sslmode', 'verify-full')
}

/** The files that the address names for TLS can be read. @throws {CaissonError} `invalid_options` */
export async function checkFilesOf({ connection }: FleetAddress): Promise<void> {
  const { searchParams } = new URL(connection)
  if (searchParams.has('sslcert') !== searchParams.has('sslkey'))
    throw new CaissonError('invalid_options', "the fleet's address has only one of sslcert and sslkey", {
      remedy: 'name both files, or none',
    })
  for (const name of ['sslrootcert', 'sslcert', 'sslkey']) {
    const file = searchParams.getAll(name).at(-1)
    if (file === undefined) continue
    await access(file, constants.R_OK).catch((error: unknown) => {
      throw new CaissonError('invalid_options', `${name} of the fleet cannot be read: ${reasonOf(error)}`, {
        remedy: `check the path ${file} and its mode`,
      })
    })
  }
}

/** Without the text, which may be a password. @throws {CaissonError} `invalid_options` */
function decode(text: string, from: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new CaissonError('invalid_options', `${from} has a % that encodes no character`, {
      remedy: 'write a percent sign as %25',
    })
  }
}

/** Whether it is a socket of this machine, or its loopback. */
function isLocal(host: string): boolean {
  return host.startsWith('/') || ['localhost', '127.0.0.1', '[::1]', '::1'].includes(host)
}
