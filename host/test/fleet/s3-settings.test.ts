import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { inspect } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { openBlobStore } from '../../fleet/blob-address.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { readS3Settings } from '../../fleet/s3-settings.ts'

const secret = 'wJalrXUtnFEMI-the-secret'
const keys = { HOME: '/nonexistent', AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE', AWS_SECRET_ACCESS_KEY: secret }

async function failure(address: string, env: Record<string, string> = keys): Promise<string> {
  const error = await readS3Settings(address, env, '--fleet-files').then(
    () => undefined,
    (seen: unknown) => seen,
  )
  expect(error).toMatchObject({ code: 'invalid_options' })
  const text = inspect(error, { depth: 9 })
  for (const key of [secret, 'AKIDEXAMPLE', 'in-the-address']) expect(text).not.toContain(key)
  return error instanceof Error ? error.message : ''
}

it('takes bucket and prefix of the address, endpoint and region of the variables', async () => {
  const plain = await readS3Settings('s3://files.of-runs/a/b/', keys, 'the test')
  expect(plain).toMatchObject({
    ...{ bucket: 'files.of-runs', prefix: 'a/b/', region: 'us-east-1' },
    base: 'https://s3.us-east-1.amazonaws.com/files.of-runs/',
  })
  const env = { ...keys, AWS_REGION: 'eu-central-1' }
  expect((await readS3Settings('s3://files', env, 'the test')).base).toBe(
    'https://files.s3.eu-central-1.amazonaws.com/',
  )
  const own = {
    ...env,
    AWS_ENDPOINT_URL: 'http://ignored.example',
    AWS_ENDPOINT_URL_S3: 'https://s3.example:9000/at',
  }
  const settings = await readS3Settings('s3://files', own, 'the test')
  expect(settings).toMatchObject({
    ...{ base: 'https://s3.example:9000/at/files/', prefix: '' },
    shown: 's3://files at s3.example:9000',
  })
  // Whatever shows them, no key is seen.
  for (const text of [
    inspect(settings, { depth: 9 }),
    JSON.stringify(settings),
    inspect(await settings.keys()),
  ])
    expect(text).not.toContain(secret)
  expect((await settings.keys()).secretAccessKey.reveal()).toBe(secret)
})

it('takes keys, region and endpoint of a profile, read again each time, and never half of each place', async () => {
  const HOME = await temporaryFolder('home')
  await mkdir(path.join(HOME, '.aws'))
  const write = async (token: string) =>
    await writeFile(
      path.join(HOME, '.aws/credentials'),
      `# kept by hand\n[default]\naws_access_key_id = other\naws_secret_access_key = ${secret}\n\n[fleet]\r\naws_access_key_id=AKIDEXAMPLE\r\naws_secret_access_key = ${secret}\naws_session_token = ${token}\n`,
    )
  await write('first')
  const config =
    '[default]\nregion = us-west-2\n[profile  fleet]\nregion = eu-west-3\nendpoint_url = https://s3.example\n'
  await writeFile(path.join(HOME, '.aws/config'), config)
  const settings = await readS3Settings('s3://files', { HOME, AWS_PROFILE: 'fleet' }, 'the test')
  expect(settings).toMatchObject({ region: 'eu-west-3', base: 'https://s3.example/files/' })
  const tokenNow = async () => (await settings.keys()).sessionToken?.reveal()
  expect(await tokenNow()).toBe('first')
  await write('second')
  expect(await tokenNow()).toBe('second')
  expect((await readS3Settings('s3://files', { HOME }, 'the test')).region).toBe('us-west-2')
  expect(await failure('s3://files', { HOME, AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE' })).toContain(
    'there are no keys',
  )
  expect(await failure('s3://files', { HOME, AWS_PROFILE: 'none' })).toContain('AWS_PROFILE names "none"')
})

it('refuses addresses, endpoints and regions that are none, and repeats no key of them', async () => {
  for (const address of [
    's3://',
    's3://UPPER',
    's3:/files',
    's3://a',
    's3://files/../other',
    's3://files//a',
    's3://files/a b',
    's3://files/.hidden',
    `s3://AKIDEXAMPLE:${secret}@files`,
    `s3://files?secret=in-the-address`,
    's3://files/a?b',
  ])
    expect(await failure(address), address).toContain('expected s3://BUCKET/PREFIX')
  const endpoints = [
    's3.example',
    'ftp://s3.example',
    'https://user:in-the-address@s3.example',
    'https://s3.example?a=b',
  ]
  for (const AWS_ENDPOINT_URL of endpoints)
    expect(await failure('s3://files', { ...keys, AWS_ENDPOINT_URL })).toContain(
      'AWS_ENDPOINT_URL is no address',
    )
  expect(await failure('s3://files', { ...keys, AWS_REGION: 'eu/../x' })).toContain('AWS_REGION is no name')
  expect(await failure('s3://files', { HOME: '/nonexistent' })).toContain('set AWS_ACCESS_KEY_ID')
})

it('opens a directory or a bucket by its address, and nothing else', async () => {
  const folder = await temporaryFolder('files')
  expect(await openBlobStore(folder, {})).toBeInstanceOf(DirectoryBlobs)
  expect((await openBlobStore('s3://files', keys)).shown).toBe(
    's3://files at files.s3.us-east-1.amazonaws.com',
  )
  for (const address of ['', 'https://files.example', 'a\0b'])
    await expect(openBlobStore(address, keys)).rejects.toMatchObject({ code: 'invalid_options' })
})
