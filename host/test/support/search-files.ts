/** Looks for words in files of any size, such as a VM's memory. */
import { open, readdir } from 'node:fs/promises'
import path from 'node:path'

/** Which files below `folder` hold each of the words. */
export async function searchFiles(folder: string, words: readonly string[]): Promise<Map<string, string[]>> {
  const found = new Map(words.map((word) => [word, [] as string[]]))
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const file = path.join(entry.parentPath, entry.name)
    for (const word of await searchFile(file, words)) found.get(word)?.push(path.relative(folder, file))
  }
  return found
}

async function searchFile(file: string, words: readonly string[]): Promise<Set<string>> {
  const seen = new Set<string>()
  await using handle = await open(file)
  const piece = Buffer.alloc(8 * 1024 * 1024)
  const overlap = Math.max(...words.map((word) => word.length))
  for (let at = 0; ; at += piece.length - overlap) {
    const { bytesRead } = await handle.read(piece, 0, piece.length, at)
    const bytes = piece.subarray(0, bytesRead)
    for (const word of words) if (bytes.includes(word)) seen.add(word)
    if (bytesRead < piece.length) return seen
  }
}
