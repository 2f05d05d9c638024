/** A certificate authority of one's own and a certificate that it signed, by openssl, in a folder that the test throws away. */
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const run = promisify(execFile)

export interface TestAuthority {
  /** The authority's certificate, PEM. */
  readonly caFile: string
  readonly ca: string
  /** Of a server with the names that were asked for. */
  readonly cert: string
  readonly key: string
}

/** @param names such as `DNS:model.test` or `IP:127.0.0.1` */
export async function makeAuthority(...names: readonly string[]): Promise<TestAuthority> {
  const folder = await temporaryFolder('authority')
  const at = (name: string): string => path.join(folder, name)
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
  const openssl = (...args: string[]) => run('openssl', args, { cwd: folder })
  await openssl(
    'req',
    '-x509',
    ...curve,
    '-subj',
    '/CN=Test Authority',
    '-keyout',
    'ca.key',
    '-out',
    'ca.pem',
  )
  await openssl(
    'req',
    ...curve.slice(0, 5),
    '-subj',
    '/CN=server',
    '-keyout',
    'key.pem',
    '-out',
    'request.pem',
  )
  await writeFile(at('names'), `subjectAltName=${names.join(',')}\n`)
  const signed = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2', '-extfile', 'names']
  await openssl('x509', '-req', '-in', 'request.pem', ...signed, '-out', 'cert.pem')
  const [ca, cert, key] = await Promise.all(
    ['ca.pem', 'cert.pem', 'key.pem'].map((name) => readFile(at(name), 'utf8')),
  )
  return { caFile: at('ca.pem'), ca: ca ?? '', cert: cert ?? '', key: key ?? '' }
}
