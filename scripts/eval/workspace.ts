/** The folders of a task: its workspace before the run, and how files are written to and read from one. */
import { lstatSync, readFileSync, realpathSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { execa } from 'execa'
import type { EvalTask, ReadResult, TaskFiles } from './task.ts'

const setupTimeoutMs = 60_000
const resultMaxBytes = 4 * 1024 ** 2

/** Writes the workspace of a task into an existing, empty folder. Its commands are of the suite, not of an agent. */
export async function writeWorkspace(task: EvalTask, folder: string): Promise<void> {
  await writeFiles(folder, task.files)
  if (task.setup === undefined) return
  await execa('bash', ['-euc', task.setup], { cwd: folder, timeout: setupTimeoutMs, stdin: 'ignore' })
}

/** Writes files of the suite; null removes one. */
export async function writeFiles(folder: string, files: TaskFiles): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(folder, name)
    if (text === null) {
      await rm(file, { force: true })
      continue
    }
    await mkdir(path.dirname(file), { recursive: true })
    await writeFile(file, text)
  }
}

/**
 * Reads files of a result, which an agent made: regular files below the folder, reached without a link, of at most 4 MiB.
 * Others count as absent.
 */
export function resultReader(folder: string): ReadResult {
  const root = realpathSync(folder)
  return (name) => {
    const file = path.join(root, name)
    try {
      if (realpathSync(file) !== file) return null
      const found = lstatSync(file)
      return found.isFile() && found.size <= resultMaxBytes ? readFileSync(file, 'utf8') : null
    } catch {
      return null
    }
  }
}
