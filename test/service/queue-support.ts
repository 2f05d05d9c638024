// Runs that work without a VM: a hook has each of them for as long as the test wants, and then ends it.
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { ConfigInput } from '../../host/config/schema.ts'
import { Host } from '../../host/index.ts'
import { cliPlace, type Place } from '../../host/test/support/cli.ts'

export interface HeldRuns {
  /** Command of a hook `before-run`. */
  readonly command: readonly string[]
  /** Ids of the runs that began, in their order. */
  begun(): Promise<string[]>
  /** Lets one run end, or all that begin. */
  release(runId?: string): Promise<void>
}

/** Call it from within a test. */
export async function heldRuns(): Promise<HeldRuns> {
  const folder = await temporaryFolder('held-runs')
  const log = path.join(folder, 'begun')
  const script = path.join(folder, 'hold')
  await mkdir(path.join(folder, 'go'))
  await writeFile(log, '')
  await writeFile(
    script,
    `#!/bin/sh
run=$(grep -o 'run-[0-9a-f]\\{20\\}' | head -n 1)
echo "$run" >> '${log}'
until [ -e '${folder}/go/all' ] || [ -e "${folder}/go/$run" ]; do sleep 0.05; done
echo '{"decision":"deny","reason":"the test is done with it"}'
`,
  )
  await chmod(script, 0o700)
  return {
    command: [script],
    begun: async () => (await readFile(log, 'utf8')).split('\n').filter((line) => line !== ''),
    release: async (runId = 'all') => await writeFile(path.join(folder, 'go', runId), ''),
  }
}

/** A place whose configuration has the hook. Call it from within a test. */
export async function placeOf(held: HeldRuns): Promise<Place> {
  const place = await cliPlace({})
  const config = path.join(place.home, 'caisson')
  await mkdir(config, { mode: 0o700 })
  const hook = `[[hooks]]\npoint = "before-run"\ncommand = ${JSON.stringify(held.command)}\ntimeoutMs = 600000\n`
  await writeFile(path.join(config, 'config.toml'), hook, { mode: 0o600 })
  return place
}

/**
 * A host with a queue for one run at work. Its runs wait in a hook until the test ends, and write no more after it.
 * @param more variables and settings besides
 */
export async function hostOfHeldRuns(
  name: string,
  more: { readonly env?: Readonly<Record<string, string>>; readonly config?: ConfigInput } = {},
) {
  const held = await heldRuns()
  const home = await temporaryFolder(name)
  const host = new Host({
    env: { HOME: home, CAISSON_HOME: path.join(home, 'state'), PATH: process.env.PATH, ...more.env },
    config: { hooks: [{ point: 'before-run', command: [...held.command] }], ...more.config },
    queue: { maxAtWork: 1 },
  })
  onTestFinished(async () => {
    await held.release()
    await vi.waitUntil(async () => (await host.runs.live()).size === 0, { timeout: 30_000 })
    await host.close()
  })
  return { held, home, host }
}
