/**
 * What errors of PostgreSQL and its driver mean to a host: wait and try again, or stop. Messages have the address without
 * passwords, and say what to do.
 */
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { FleetAddress } from './address.ts'

/**
 * Whether the database, or the way to it, could not do it now: what was asked may have been done or not, and the same
 * request may be repeated.
 */
export function isConnectionLost(error: unknown): boolean {
  return error instanceof CaissonError && error.code === 'state_unavailable' && error.cause !== undefined
}

/** SQLSTATE: the server is a replica, as after a failover. Another connection may reach the new primary. */
export function isReadOnly(error: unknown): boolean {
  return codeOf(error) === '25006'
}

/** SQLSTATE classes and codes (https://www.postgresql.org/docs/current/errcodes-appendix.html) of what passes. */
const passing: readonly { readonly start: string; readonly remedy: string }[] = [
  { start: '25006', remedy: 'let the address lead to the primary; the host tries again' },
  { start: '53300', remedy: 'raise max_connections, or run fewer hosts; the host tries again' },
  { start: '53100', remedy: 'make room on the disk of the database; the host tries again' },
  { start: '57014', remedy: 'look what slows the database down; the host tries again' },
  // Connections that end or fail, and a server without resources.
  ...['08', '57P', '53'].map((start) => ({ start, remedy: '' })),
  // Transactions that the server ended: idle for too long, too long at all, locks that others held, deadlocks.
  ...['25P03', '25P04', '55P03', '40001', '40P01'].map((start) => ({ start, remedy: '' })),
]
const startIt = 'start the database, or check the address and the network'
const systemCodes = [
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EAI_AGAIN',
]
const driverTexts = [
  'Connection terminated',
  'Query read timeout',
  'timeout exceeded when trying to connect',
  'Client has',
]

/** Codes of OpenSSL's checks (https://nodejs.org/api/tls.html#x509-certificate-error-codes), and what to do. */
const certificateRemedies: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'renew the certificate of the database',
  CERT_NOT_YET_VALID: 'check the clock of this host and the certificate of the database',
  ERR_TLS_CERT_ALTNAME_INVALID:
    'use a host name of the certificate in the address, or issue a certificate for this name',
  ...Object.fromEntries(
    [
      'DEPTH_ZERO_SELF_SIGNED_CERT',
      'SELF_SIGNED_CERT_IN_CHAIN',
      'UNABLE_TO_GET_ISSUER_CERT',
      'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    ].map((code) => [
      code,
      'name the authority that signed the certificate: sslrootcert=FILE in the address',
    ]),
  ),
}

/** The error of the driver as one of Caisson, without secrets. */
export function knownError(error: unknown, address: FleetAddress): CaissonError {
  if (error instanceof CaissonError) return error
  const code = codeOf(error)
  const text = withoutSecrets(textOf(error), address)
  // Kept for logs, so it has no secrets either.
  const cause = new Error(text)
  const { shown } = address
  const refused = refusalOf(code, text)
  if (refused !== undefined)
    return new CaissonError('permission_denied', `the fleet at ${shown} refuses this host: ${text}`, {
      cause,
      remedy: refused,
    })
  const untrusted = distrustOf(code, text)
  if (untrusted !== undefined)
    return new CaissonError('state_unavailable', `the fleet at ${shown} is not trusted: ${text}`, {
      cause,
      remedy: untrusted,
    })
  const found = passing.find(({ start }) => code.startsWith(start))
  const isLost =
    found !== undefined || systemCodes.includes(code) || driverTexts.some((start) => text.startsWith(start))
  if (isLost)
    return new CaissonError('state_unavailable', `the fleet at ${shown} does not answer: ${text}`, {
      cause,
      remedy: found === undefined || found.remedy === '' ? startIt : found.remedy,
    })
  if (code === '3D000')
    return new CaissonError('invalid_options', `the fleet at ${shown} has no database: ${text}`, {
      cause,
      remedy: 'check the name in the address, or create it: createdb -E UTF8 -T template0 NAME',
    })
  return new CaissonError('internal', `the database of the fleet failed: ${text}`, { cause })
}

const noPassword = 'it asks for a password, and none is named'

/** What to do about a refusal. Undefined: it is none. */
function refusalOf(code: string, text: string): string | undefined {
  if (code === '42501')
    return 'have an owner of the tables grant the rights of a host to the role: caisson fleet prepare --role ROLE'
  if (text === noPassword)
    return 'name it: PGPASSWORD, PGPASSFILE, or the whole address in CAISSON_FLEET or --fleet-file'
  if (!['28000', '28P01'].includes(code)) return undefined
  if (/client certificate|certificate authentication/.test(text))
    return 'name a certificate for the user of the address: sslcert=FILE and sslkey=FILE'
  if (/no encryption/.test(text)) return 'the server takes no connection without TLS: use sslmode=verify-full'
  return 'check user and password'
}

/** What to do about a connection that TLS does not protect. Undefined: nothing of that kind failed. */
function distrustOf(code: string, text: string): string | undefined {
  if (text.startsWith('The server does not support SSL connections'))
    return 'set ssl=on in the database, or sslmode=disable in a network that nobody else can read'
  if (/^ERR_SSL_.*ALERT/.test(code))
    return 'the database refused the certificate of this host: check sslcert, sslkey and its ssl_ca_file'
  return certificateRemedies[code]
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}

/** A name with several addresses fails with an error for each, and no text of its own. */
function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '')
    return error.errors.map((one: unknown) => errorMessage(one)).join('; ')
  const text = errorMessage(error)
  // Of the driver, which has no code for it.
  return /client password must be a (non-empty )?string$/.test(text) ? noPassword : text
}

function withoutSecrets(text: string, { secrets }: FleetAddress): string {
  return secrets.reduce((left, secret) => left.replaceAll(secret, '[password]'), text)
}
