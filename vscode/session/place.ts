/** Where the service is: named by the person's settings, or found on this machine as the command line finds it. */
import { findLocalService } from '../../host/cli/local-service.ts'
import { resolveFolders } from '../../host/state/folders.ts'

export type Place =
  | { readonly kind: 'local'; readonly socket: string }
  /** `url` is an origin. */
  | { readonly kind: 'named'; readonly url: string }
  | { readonly kind: 'none' }
  | { readonly kind: 'wrong'; readonly problem: string }

/** @param named the setting, @param version of this extension, which a service of this machine must have too */
export async function findPlace(named: string, version: string): Promise<Place> {
  if (named !== '') return namedPlace(named)
  const found = await findLocalService(resolveFolders().home, version).catch((error: unknown) => ({
    problem: error instanceof Error ? error.message : String(error),
  }))
  if (found === undefined) return { kind: 'none' }
  return 'problem' in found
    ? { kind: 'wrong', problem: found.problem }
    : { kind: 'local', socket: found.socket }
}

/** An address without TLS is of this machine, so that nobody else reads the token. */
export function namedPlace(named: string): Place {
  const url = URL.parse(named.trim())
  const isSafe = url !== null && (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url)))
  if (isSafe && url.username === '' && url.password === '' && url.search === '' && url.pathname === '/')
    return { kind: 'named', url: url.origin }
  return {
    kind: 'wrong',
    problem:
      'The setting caisson.service is not the address of a service: expected https://HOST, or http:// with a host of this ' +
      'machine. Correct the setting.',
  }
}

/** Whether the service of an address is on this machine. */
export function isLoopback({ hostname }: URL): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d{1,3}){3}$/.test(hostname)
}
