/** Puts a whole new content in the place of a state file: others see the old or the new one, also after a crash. */
import { open } from 'node:fs/promises'
import { renameDurably } from './durable.ts'

/** For this user alone. The caller holds the file's lock: two at once would write to one draft. @throws what the file system does */
export async function replaceFile(file: string, content: string | Uint8Array): Promise<void> {
  const fresh = `${file}.new`
  const draft = await open(fresh, 'w', 0o600)
  await draft.writeFile(content).finally(async () => {
    await draft.sync()
    await draft.close()
  })
  await renameDurably(fresh, file)
}
