/** Reads one file of a run's changes from their archive. */
import type { ServiceClient } from '../../client/index.ts'
import { TarReader } from '../../host/control/tar.ts'

/** Larger files have no diff in the service either. */
const maxBytes = 4 * 1024 * 1024

/** @returns its text; undefined where the archive lacks it, or it is no text of at most 4 MiB */
export async function readChangedFile(
  client: ServiceClient,
  run: string,
  path: string,
): Promise<string | undefined> {
  const stopping = new AbortController()
  const archive = await client.call('getChangedFiles', { params: { run }, signal: stopping.signal })
  try {
    const reader = new TarReader(archive, { readsPax: true, refuse: (what) => broken(what) })
    for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
      if (entry.path !== `files/${path}`) continue
      if (entry.type !== 'file' || entry.size > maxBytes) return undefined
      const pieces: Uint8Array[] = []
      for await (const piece of reader.content()) pieces.push(piece)
      return textOf(Buffer.concat(pieces))
    }
    return undefined
  } finally {
    stopping.abort()
    await archive.cancel().catch(() => undefined)
  }
}

function textOf(content: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content)
  } catch {
    return undefined
  }
}

function broken(what: string): never {
  throw new Error(`The archive of the changes has ${what}. Read the changes on the web page.`)
}
