/** Looks for words in files of any size, such as a VM's memory. */
import { open, readdir } from 'node:fs/promises'
import path from 'node:path'
import { findContent } from '../../archive/holes.ts'

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
  const { size } = await handle.stat()
  const piece = Buffer.alloc(8 * 1024 * 1024)
  const overlap = Math.max(...words.map((word) => word.length))
  // A disk is many times as large as its content, and the holes between are zeros.
  for (const { at: from, bytes } of (await findContent(file, size)) ?? [{ at: 0, bytes: size }]) {
    for (let at = from; at < from + bytes; at += piece.length - overlap) {
      const { bytesRead } = await handle.read(piece, 0, Math.min(piece.length, from + bytes - at), at)
      for (const word of words) if (piece.subarray(0, bytesRead).includes(word)) seen.add(word)
      if (bytesRead < piece.length) break
    }
  }
  return seen
}
