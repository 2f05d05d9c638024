/**
 * What `caisson serve` reads from the environment: PORT, CORS_ORIGINS, JWT_JWKS, JWT_ISSUER, JWT_AUDIENCE, ENVIRONMENT and
 * DEBUG. An option wins over its variable.
 */
import { CaissonError } from '#specs/errors.ts'
import type { JwtOptions } from '../../jwt/jwt.ts'
import { sanitizeLine } from '../render/sanitize.ts'

type Environment = Readonly<Record<string, string | undefined>>

const portDefault = 3_789
const portMax = 65_535
const originsMax = 64

/** @param port of the option @throws {CaissonError} `invalid_options` */
export function portOf({ PORT }: Environment, port: number | undefined): number {
  const isNumber = PORT === undefined || /^\d{1,5}$/.test(PORT)
  const given = port ?? (PORT === undefined || PORT === '' ? portDefault : isNumber ? Number(PORT) : -1)
  if (Number.isInteger(given) && given >= 0 && given <= portMax) return given
  throw new CaissonError(
    'invalid_options',
    `the port ${shown(String(port ?? PORT))}: expected a whole number up to ${portMax}`,
    { remedy: port === undefined ? 'change the variable PORT, or pass --port' : 'pass another --port' },
  )
}

/**
 * Origins of `--allow-origin`; without the option those of CORS_ORIGINS, with commas between them.
 * @throws {CaissonError} `invalid_options` for anything but exact origins
 */
export function originsOf(
  { CORS_ORIGINS = '' }: Environment,
  given: readonly string[] | undefined,
): string[] {
  if (given !== undefined) return given.map((origin) => originOf(origin, '--allow-origin'))
  const origins = CORS_ORIGINS.split(',')
    .map((text) => text.trim())
    .filter((text) => text !== '')
  if (origins.length > originsMax)
    throw new CaissonError('invalid_options', `CORS_ORIGINS has more than ${originsMax} origins`)
  return origins.map((origin) => originOf(origin, 'CORS_ORIGINS'))
}

/**
 * The origin of `--public-url`: https, or http of this machine, since a link lets its holder answer.
 * @throws {CaissonError} `invalid_options`
 */
export function publicUrlOf(text: string): string {
  const origin = originOf(text.replace(/\/$/, ''), '--public-url')
  if (/^https:|^http:\/\/(?:localhost|127\.0\.0\.1|\[::1\])(?::|$)/.test(origin)) return origin
  throw new CaissonError('invalid_options', `--public-url ${shown(text)}: expected https`, {
    remedy: 'put a proxy that ends TLS before the service, or pass --tls-cert and --tls-key',
  })
}

function originOf(text: string, setting: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url !== undefined && /^https?:$/.test(url.protocol) && url.origin === text) return text
  throw new CaissonError(
    'invalid_options',
    `${setting} ${shown(text)}: expected a scheme and a host, such as https://app.example.com`,
    text === '*' ? { remedy: 'name each origin; pages of every origin cannot be allowed' } : {},
  )
}

export interface JwtFlags {
  readonly jwks?: readonly string[]
  readonly jwtIssuer?: readonly string[]
  readonly jwtAudience?: readonly string[]
  readonly jwtMaxRequestsPerMinute?: number
  readonly jwtMaxRuns?: number
  readonly jwtMaxTokens?: number
  readonly jwtMaxCostUsd?: number
  /** False with `--no-token`. */
  readonly token?: boolean
}

/** Whose JWTs the service accepts; none for no JWTs. @throws {CaissonError} `invalid_options` for a part of it */
export function jwtOf(env: Environment, flags: JwtFlags): JwtOptions[] {
  const parts = [
    { name: '--jwks (JWT_JWKS)', values: flags.jwks ?? [env.JWT_JWKS ?? ''] },
    { name: '--jwt-issuer (JWT_ISSUER)', values: flags.jwtIssuer ?? [env.JWT_ISSUER ?? ''] },
    { name: '--jwt-audience (JWT_AUDIENCE)', values: flags.jwtAudience ?? [env.JWT_AUDIENCE ?? ''] },
  ] as const
  const missing = parts.filter(({ values }) => values.some((value) => value === ''))
  const quotas = [flags.jwtMaxRequestsPerMinute, flags.jwtMaxRuns, flags.jwtMaxTokens, flags.jwtMaxCostUsd]
  if (missing.length === parts.length && quotas.every((quota) => quota === undefined)) return []
  if (missing.length > 0)
    throw new CaissonError(
      'invalid_options',
      `JWTs need ${missing.map(({ name }) => name).join(' and ')} too`,
      {
        remedy: 'pass keys, issuer and audience, or nothing of JWTs',
      },
    )
  if (flags.token === false)
    throw new CaissonError('invalid_options', '--no-token lets everybody call, so JWTs would limit nobody', {
      remedy: 'leave out --no-token or the options of JWTs',
    })
  const [{ values: jwks }, { values: issuers }, { values: audiences }] = parts
  if (issuers.length !== jwks.length || (audiences.length !== 1 && audiences.length !== jwks.length))
    throw new CaissonError(
      'invalid_options',
      `JWTs: ${jwks.length} --jwks, ${issuers.length} --jwt-issuer and ${audiences.length} --jwt-audience do not go together`,
      { remedy: 'pass one --jwt-issuer for each --jwks, and one --jwt-audience for all or for each' },
    )
  return jwks.map((place, at) => ({
    ...{ jwks: place, issuer: issuers[at] ?? '' },
    audience: audiences[audiences.length === 1 ? 0 : at] ?? '',
  }))
}

/** `production` refuses what is for development alone: DEBUG and `--no-token`. */
export function modeOf(env: Environment, isOpen: boolean): { readonly isDebug: boolean } {
  const { ENVIRONMENT = '', DEBUG = '' } = env
  if (!/^(?:|development|test|production)$/.test(ENVIRONMENT))
    throw new CaissonError(
      'invalid_options',
      `ENVIRONMENT ${shown(ENVIRONMENT)}: expected development, test or production`,
      { remedy: 'change or unset the variable' },
    )
  if (!/^(?:|true|false|1|0)$/.test(DEBUG))
    throw new CaissonError('invalid_options', `DEBUG ${shown(DEBUG)}: expected true or false`, {
      remedy: 'change or unset the variable',
    })
  const isDebug = DEBUG === 'true' || DEBUG === '1'
  const wrong = isDebug ? 'DEBUG' : isOpen ? '--no-token' : undefined
  if (ENVIRONMENT === 'production' && wrong !== undefined)
    throw new CaissonError('invalid_options', `${wrong} is for development, and ENVIRONMENT is production`, {
      remedy: isDebug ? 'set DEBUG to false' : 'leave out --no-token',
    })
  return { isDebug }
}

function shown(text: string): string {
  return JSON.stringify(sanitizeLine(text, 100))
}
