/** Replaces the content of a state file atomically: others see the old or the new one, even after a crash. */
import { randomBytes } from 'node:crypto'
import { open, readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { renameDurably } from './durable.ts'

/**
 * For this user alone. The caller holds the file's lock, so that drafts of others are of killed processes.
 * @throws what the file system does
 */
export async function replaceFile(file: string, content: string | Uint8Array): Promise<void> {
  const [folder, name] = [path.dirname(file), path.basename(file)]
  await removeDrafts(folder, name)
  const draft = path.join(folder, `${name}.${randomBytes(6).toString('hex')}.new`)
  try {
    await using handle = await open(draft, 'wx', 0o600)
    await handle.writeFile(content)
    await handle.sync()
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
  await renameDurably(draft, file)
}

async function removeDrafts(folder: string, name: string): Promise<void> {
  const isDraft = (other: string) =>
    other.startsWith(name) && /^\.(?:[0-9a-f]{12}\.)?new$/.test(other.slice(name.length))
  for (const draft of (await readdir(folder)).filter(isDraft))
    await rm(path.join(folder, draft), { force: true })
}
