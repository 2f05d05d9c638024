// What a run takes from its options, the command line and the configuration file, without a VM.
import { mkdir, writeFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { configFile } from '../config/load.ts'
import { Host } from '../host.ts'
import { openSignIns } from '../open-sign-ins.ts'
import { resolveRun } from '../resolve-run.ts'
import { SecretChanges } from '../secrets/secrets.ts'
import { Settings } from '../settings.ts'

/** The machine of a run that is started with this file and these settings of the command line. */
async function machineOf(file: string, overrides: readonly string[], vm?: { sleepAfterMs: number }) {
  const home = await temporaryFolder('resolve')
  const env = { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH }
  const { folders, runs, notes, mcpPins } = new Host({ env })
  await mkdir(folders.config, { recursive: true, mode: 0o700 })
  await writeFile(configFile(folders), file, { mode: 0o600 })
  const settings = new Settings({ folders, env }, undefined, overrides)
  const signIns = openSignIns(settings, { folders, env })
  const host = { env, folders, settings, runs, notes, mcpPins, signIns, secrets: new SecretChanges() }
  const options = { prompt: 'x', workspace: await temporaryFolder('workspace') }
  return (await resolveRun({ ...options, ...(vm === undefined ? {} : { vm }) }, host, () => undefined)).vm
}

it('a run sleeps after the time of its options, else of -c, else of the file, else of the default [R.12 H.01]', async () => {
  const file = 'provider = "offline"\n[vm]\nsleepAfterMs = 1_000\n'
  expect(await machineOf(file, ['vm.sleepAfterMs=2_000'], { sleepAfterMs: 0 })).toMatchObject({
    sleepAfterMs: 0,
  })
  expect(await machineOf(file, ['vm.sleepAfterMs=0'])).toMatchObject({ sleepAfterMs: 0 })
  expect(await machineOf(file, [])).toMatchObject({ sleepAfterMs: 1_000 })
  expect(await machineOf('provider = "offline"\n', [])).not.toHaveProperty('sleepAfterMs')
})
