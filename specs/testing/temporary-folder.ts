/** A folder for one test, gone when the test is over. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'

/** Call it from within a test (not from `beforeAll`). */
export async function temporaryFolder(name = 'test'): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), `caisson-${name}-`))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}
