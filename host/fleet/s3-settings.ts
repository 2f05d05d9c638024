/**
 * Where the files of a fleet are in an S3-compatible store, and with which keys: from the variables and profile files of the AWS
 * command line. A key never comes from an argument, and leaves this file as a {@link Secret}.
 * Format of the files: https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
 */
import { readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { Secret } from '../keys/secret.ts'

export interface S3Keys {
  readonly accessKeyId: Secret
  readonly secretAccessKey: Secret
  /** Of keys that expire. */
  readonly sessionToken?: Secret
}

export interface S3Settings {
  /** Of the bucket, with `/` at its end. */
  readonly base: string
  /** Before each name, `/` at its end; empty: none. */
  readonly prefix: string
  readonly bucket: string
  readonly region: string
  /** For people: `s3://BUCKET/PREFIX at HOST`. */
  readonly shown: string
  /** Reads the keys again, which a profile file may have new. @throws {CaissonError} `invalid_options` */
  keys(): Promise<S3Keys>
}

type Env = Readonly<Record<string, string | undefined>>
type Profile = Readonly<Record<string, string>>

const form = 'expected s3://BUCKET/PREFIX'
const bucketNames = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/
const prefixes = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/

export function isS3Address(address: string): boolean {
  return address.toLowerCase().startsWith('s3:')
}

/** @param from what has the address, for messages @throws {CaissonError} `invalid_options`, without keys */
export async function readS3Settings(address: string, env: Env, from: string): Promise<S3Settings> {
  const { bucket, prefix } = parseAddress(address, from)
  const profile = await readProfile(env)
  const region = given(env, 'AWS_REGION', 'AWS_DEFAULT_REGION') ?? profile.region ?? 'us-east-1'
  if (!/^[a-z0-9-]{1,64}$/.test(region))
    throw new CaissonError('invalid_options', 'AWS_REGION is no name of a region, such as eu-central-1')
  const services = given(env, 'AWS_ENDPOINT_URL_S3', 'AWS_ENDPOINT_URL') ?? profile.endpoint_url
  const endpoint = services === undefined ? undefined : parseEndpoint(services)
  // A certificate for *.s3.REGION.amazonaws.com has no names with a further dot.
  const isOwnHost = endpoint === undefined && !bucket.includes('.')
  const amazon = `https://${isOwnHost ? `${bucket}.` : ''}s3.${region}.amazonaws.com/`
  const base = isOwnHost ? amazon : `${endpoint ?? amazon}${bucket}/`
  const settings = {
    ...{ base, prefix: prefix === '' ? '' : `${prefix}/`, bucket, region },
    shown: `s3://${bucket}${prefix === '' ? '' : `/${prefix}`} at ${new URL(base).host}`,
    keys: async () => keysOf(env, await readProfile(env)),
  }
  // Found missing when the host starts, not at its first checkpoint.
  await settings.keys()
  return settings
}

function parseAddress(address: string, from: string): { bucket: string; prefix: string } {
  const [, rest = ''] = /^s3:\/\/(.*)$/i.exec(address) ?? []
  if (rest.includes('@') || rest.includes('?'))
    throw new CaissonError('invalid_options', `${from} has more than a bucket and a prefix; ${form}`, {
      remedy: 'put keys into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into a profile file',
    })
  const [bucket = '', ...more] = rest.split('/')
  const prefix = more.join('/').replace(/\/$/, '')
  if (!bucketNames.test(bucket))
    throw new CaissonError('invalid_options', `${from} names no bucket of S3; ${form}`)
  if (prefix !== '' && (!prefixes.test(prefix) || prefix.length > 512))
    throw new CaissonError(
      'invalid_options',
      `${from} has a prefix that is not made of letters, digits, "-", "_", "." and "/"; ${form}`,
    )
  return { bucket, prefix }
}

/** With `/` at its end. */
function parseEndpoint(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isPlain = url !== undefined && url.username === '' && url.search === '' && url.hash === ''
  if (!isPlain || !['http:', 'https:'].includes(url.protocol))
    throw new CaissonError(
      'invalid_options',
      'AWS_ENDPOINT_URL is no address such as https://s3.example.com',
      {
        remedy: 'it has no keys and no query',
      },
    )
  return `${url.origin}${url.pathname.replace(/\/$/, '')}/`
}

function keysOf(env: Env, profile: Profile): S3Keys {
  const id = given(env, 'AWS_ACCESS_KEY_ID')
  const secret = given(env, 'AWS_SECRET_ACCESS_KEY')
  const token = given(env, 'AWS_SESSION_TOKEN')
  // Never the id of one place with the secret of another.
  const [accessKeyId, secretAccessKey, sessionToken] =
    id !== undefined || secret !== undefined
      ? [id, secret, token]
      : [profile.aws_access_key_id, profile.aws_secret_access_key, profile.aws_session_token]
  if (
    accessKeyId === undefined ||
    secretAccessKey === undefined ||
    accessKeyId === '' ||
    secretAccessKey === ''
  )
    throw new CaissonError('invalid_options', 'there are no keys for the S3 store of the fleet', {
      remedy:
        'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile of ~/.aws/credentials that has both',
    })
  return {
    accessKeyId: new Secret(accessKeyId),
    secretAccessKey: new Secret(secretAccessKey),
    ...(sessionToken === undefined || sessionToken === '' ? {} : { sessionToken: new Secret(sessionToken) }),
  }
}

/** The keys of the credentials file count before those of the configuration. */
async function readProfile(env: Env): Promise<Profile> {
  const asked = given(env, 'AWS_PROFILE')
  const name = asked ?? 'default'
  const home = path.join(given(env, 'HOME') ?? homedir(), '.aws')
  const files = [
    { file: given(env, 'AWS_CONFIG_FILE') ?? path.join(home, 'config'), heads: [`profile ${name}`] },
    { file: given(env, 'AWS_SHARED_CREDENTIALS_FILE') ?? path.join(home, 'credentials'), heads: [name] },
  ]
  let found: Profile | undefined
  for (const { file, heads } of files) {
    const text = await readFile(file, 'utf8').catch((error: unknown) => {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return ''
      throw new CaissonError('invalid_options', `the profile file ${file} cannot be read: ${reasonOf(error)}`)
    })
    const part = readSection(text, [...heads, ...(name === 'default' ? ['default'] : [])])
    if (part !== undefined) found = { ...found, ...part }
  }
  if (found === undefined && asked !== undefined)
    throw new CaissonError(
      'invalid_options',
      `AWS_PROFILE names ${JSON.stringify(asked)}, which no file has`,
      {
        remedy: `add [${asked}] to ${files[1]?.file}`,
      },
    )
  return found ?? {}
}

/** Undefined: the file has no such section. Nested values (indented lines) are left out. */
function readSection(text: string, heads: readonly string[]): Profile | undefined {
  const found: [string, string][] = []
  let isThere = false
  let isInside = false
  for (const line of text.split(/\r?\n/)) {
    const [, head] = /^\[\s*([^\]]+?)\s*\]/.exec(line) ?? []
    if (head !== undefined) {
      isInside = heads.includes(head.replace(/\s+/, ' '))
      isThere ||= isInside
    }
    const [, key = '', value = ''] = /^([a-z_]+)\s*=\s*(.*?)\s*$/.exec(line) ?? []
    if (isInside && key !== '') found.push([key, value])
  }
  return isThere ? Object.fromEntries(found) : undefined
}

function given(env: Env, ...names: readonly string[]): string | undefined {
  return names.map((name) => env[name]).find((value) => value !== undefined && value !== '')
}
