// A run by the configuration file, with a key that a command prints: who is asked, and where the key may be found afterwards.
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace, runArguments } from '../support/cli.ts'

const KEY = 'sk-caisson-configured-9b1d44c07e'
const plan = {
  goal: 'Read the note',
  steps: [{ id: 'read', title: 'Read it', instructions: 'Read note.txt', needs: [], writes: [] }],
}

describe('a run by the configuration file', () => {
  it('asks the server that lists its model with the key that a command prints, which is nowhere else [G.01] [S0.09]', async () => {
    await using server = await startModelServer((_, index) => {
      if (index === 0) return reply({ calls: [{ id: 'call00001', name: 'submit_plan', arguments: plan }] })
      if (index === 1)
        return reply({ calls: [{ id: 'call00002', name: 'read_file', arguments: { path: 'note.txt' } }] })
      // A server that is angry, and repeats what it was given.
      return {
        status: 401,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ error: { message: `bad key ${KEY}` } }),
      }
    })
    const told = { lines: 0, withKey: [] as string[] }
    const config = await temporaryFolder('config')
    const place = await cliPlace({ 'note.txt': 'a note\n' }, { XDG_CONFIG_HOME: config })
    await writeFile(path.join(config, 'vault'), `${KEY}\n`, { mode: 0o600 })
    await mkdir(path.join(config, 'caisson'))
    await writeFile(
      path.join(config, 'caisson/config.toml'),
      `model = "qwen-test"
[providers.other]
url = "http://127.0.0.1:9/v1"
[providers.local]
url = "${server.baseUrl}"
models = ["qwen-*"]
key = { command = ["cat", "${path.join(config, 'vault')}"] }
[limits]
maxTokens = 77_777`,
    )
    const started = place.start(...runArguments(place, 'Read the note', '--json', '--no-apply'))
    // What every user of this machine can see of the programs of others.
    const watch = setInterval(async () => {
      const lines = await readCommandLines()
      told.lines += lines.length
      told.withKey.push(...lines.filter((line) => line.includes(KEY)))
    }, 50)
    const end = await started.ended.finally(() => clearInterval(watch))

    expect(end).toMatchObject({ code: 4 })
    expect(server.asked.length).toBeGreaterThan(2)
    for (const { headers, body } of server.asked) {
      expect([headers.authorization, body.model]).toEqual([`Bearer ${KEY}`, 'qwen-test'])
    }
    const [begin] = await place.journal()
    expect(begin?.event).toMatchObject({ provider: 'local', model: 'qwen-test' })
    expect(JSON.stringify(await place.journal())).toContain('77777')
    expect(`${end.stdout}${end.stderr}`).not.toContain(KEY)
    expect(`${end.stdout}${end.stderr}`).toContain('bad key')
    expect(told.lines).toBeGreaterThan(0)
    expect(told.withKey).toEqual([])
    expect(await filesWith(place.home, KEY)).toEqual([])
  })
})

async function readCommandLines(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  return await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
}

async function filesWith(folder: string, word: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => path.join(parentPath, name))
  const found = await Promise.all(
    // The base of a disk is sparse, larger than a buffer, and older than the run; what the run wrote is in the layers.
    files.map(async (file) =>
      (await stat(file)).size < 2 ** 31 && (await readFile(file)).includes(word) ? [file] : [],
    ),
  )
  return found.flat()
}
