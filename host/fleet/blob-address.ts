/** The store of a fleet's files by its address: `s3://BUCKET/PREFIX`, or a directory that all hosts see. */
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { type BlobStore, DirectoryBlobs } from './blob-store.ts'
import { isS3Address, readS3Settings } from './s3-settings.ts'

/**
 * @param env has the keys, region and endpoint of S3
 * @param from what has the address, for messages
 * @throws {CaissonError} `invalid_options`, without keys
 */
export async function openBlobStore(
  address: string,
  env: Readonly<Record<string, string | undefined>>,
  from = '--fleet-files',
): Promise<BlobStore> {
  if (isS3Address(address)) {
    const settings = await readS3Settings(address, env, from)
    // Loaded by a host that uses S3 alone.
    const { S3Blobs } = await import('./s3-blobs.ts')
    return new S3Blobs(settings)
  }
  if (address !== '' && !address.includes('\0') && !/^[a-z0-9+]+:\/\//i.test(address))
    return new DirectoryBlobs(path.resolve(address))
  throw new CaissonError(
    'invalid_options',
    `${from} is neither a directory nor an address of S3; expected DIRECTORY or s3://BUCKET/PREFIX`,
  )
}
