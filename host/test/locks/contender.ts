// A process of its own that does one thing each time its parent says so, at the same moment as its siblings.
import { setTimeout as sleep } from 'node:timers/promises'
import * as z from 'zod'
import { PersistentGrants } from '../../egress/persistent-grants.ts'
import { takeLock } from '../../locks/file-lock.ts'
import { NoteStore } from '../../memory/note-store.ts'
import { JsonFile } from '../../state/json-file.ts'

export interface Folders {
  readonly home: string
  readonly locks: string
}

export const contentSchema = z.strictObject({ names: z.array(z.string()) })
export const contentFile = (folders: Folders) =>
  new JsonFile(folders, 'content.json', contentSchema, { names: [] })

const work: Readonly<Record<string, (folders: Folders, name: string) => Promise<unknown>>> = {
  json: async (folders, name) => {
    await contentFile(folders).change(({ names }) => ({ names: [...names, name] }))
  },
  note: async (folders, name) => {
    const noteId = `mem-${name.padStart(12, '0')}`
    await new NoteStore(folders).change((notes) => [
      ...notes,
      { kind: 'memory', noteId, workspace: '/w', text: name, tags: [], at: 1 },
    ])
  },
  revoke: async (folders, name) => (await new PersistentGrants(folders).revoke(Number(name)))?.id ?? null,
  hold: async ({ locks }) => {
    await takeLock(`${locks}/content.json.lock`)
    await takeLock(`${locks}/notes.lock`)
    await takeLock(`${locks}/egress-grants.lock`)
    process.send?.('holds')
    await sleep(1_000_000)
  },
}

process.on('message', ({ job, folders, name }: { job: string; folders: Folders; name: string }) => {
  void (async () => {
    try {
      process.send?.({ ok: true, value: await work[job]?.(folders, name) })
    } catch (error) {
      process.send?.({ ok: false, value: String(error) })
    }
  })()
})
process.send?.('ready')
