import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, cpSync, readdirSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { userInfo } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ensureImage } from '../../image/image.ts'
import { resolveFolders } from '../../state/folders.ts'
import { cliPlace, runArguments } from '../support/cli.ts'

const bin = path.join(import.meta.dirname, '../../cli/bin.ts')
const nobody = 65_534
const asNobody = ['setpriv', `--reuid=${nobody}`, `--regid=${nobody}`, '--clear-groups']

/** Root becomes nobody where nobody may read this checkout; any other user is unprivileged already. */
const isDropping =
  userInfo().uid === 0 && spawnSync(asNobody[0] ?? '', [...asNobody.slice(1), 'test', '-r', bin]).status === 0

describe('caisson as an unprivileged user', () => {
  it('runs, applies with the user’s own rights, says what may not be written, and refuses folders of another user [V.06 W.02 H.01]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n' })
    const cache = await temporaryFolder('cli-cache')
    await copyImage(cache)
    const env = { ...place.env, HOME: place.home, CAISSON_CACHE: cache }
    const caisson = async (...argv: string[]) => {
      const [command = '', ...rest] = [
        ...(isDropping ? asNobody : ['env']),
        process.execPath,
        '--conditions=caisson-source',
        bin,
        ...argv,
      ]
      const cwd = place.workspace
      const child = spawn(command, rest, { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] })
      const code = new Promise((resolve) => child.on('close', resolve))
      const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)])
      return { code: await code, stdout, stderr }
    }
    const run = runArguments(place, 'Run the command `cp a.txt b.txt; chmod 750 b.txt`', '--apply')
    if (isDropping) {
      const refused = await caisson(...run)
      expect(refused).toMatchObject({ code: 4, stderr: expect.stringContaining('set CAISSON_HOME') })
      for (const folder of [place.home, place.workspace, cache]) giveAway(folder)
    }
    expect(await caisson(...run)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('Applied 1 change.'),
    })
    const copy = path.join(place.workspace, 'b.txt')
    expect(await readFile(copy, 'utf8')).toBe('a\n')
    const { uid, mode } = await stat(copy)
    expect([uid, mode & 0o777]).toEqual([isDropping ? nobody : userInfo().uid, 0o750])

    expect(await caisson('workspace', 'undo', 'last')).toMatchObject({ code: 0 })
    chmodSync(place.workspace, 0o555)
    const isRefused = isDropping || userInfo().uid !== 0
    const again = await caisson('workspace', 'apply', 'last', '--all')
    expect(again.code).toBe(isRefused ? 5 : 0)
    if (isRefused) expect(again.stdout).toMatch(/failed: b\.txt: .*(permission|EACCES)/i)
    chmodSync(place.workspace, 0o755)
  })
})

/** The present image into a cache of its own: a boot takes it as it is and builds nothing. */
async function copyImage(cache: string): Promise<void> {
  const from = resolveFolders().cache
  const { directory } = await ensureImage({ cacheDir: from })
  const images = path.dirname(directory)
  const key = path.basename(directory)
  cpSync(directory, path.join(cache, 'images', key), { recursive: true })
  cpSync(path.join(from, 'agents'), path.join(cache, 'agents'), { recursive: true })
  for (const name of readdirSync(images))
    if (name.startsWith(key) && name !== key)
      cpSync(path.join(images, name), path.join(cache, 'images', name))
}

function giveAway(folder: string): void {
  chownSync(folder, nobody, nobody)
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }))
    chownSync(path.join(folder, name), nobody, nobody)
}
