// shell_cmd of the library, with real programs: no shell, a scoped folder, and an end for all that was started.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { isAlive } from '../support/processes.ts'
import { caller, readValue } from './support.ts'

const json = { output_format: 'json' }
/** A program of Node's, in one argument. */
const node = (source: string) => ({ command: process.execPath, parameters: ['-e', source] })

describe('shell_cmd', () => {
  it('runs a program with its arguments as they are, in a folder below the working directory [S2.15]', async () => {
    const folder = await temporaryFolder('shell')
    mkdirSync(path.join(folder, 'sub'))
    writeFileSync(path.join(folder, 'sub/f'), 'x')
    const shell = caller('shell_cmd', folder)
    const echoed = readValue(
      await shell({ command: 'echo', parameters: ['$HOME', '*', '; ls', '`id`'], ...json }),
    )
    expect(echoed).toMatchObject({ exitCode: 0, ended: null, stdout: '$HOME * ; ls `id`\n', stderr: '' })
    expect(readValue(await shell({ command: 'pwd', directory: 'sub', ...json })).stdout).toMatch(/\/sub\n$/)
    const { content, ok } = await shell({ command: 'ls', parameters: ['f', 'nothing'], directory: 'sub' })
    expect(ok).toBe(true)
    expect(content).toMatch(
      /^\*\*Exit code 2 after [\d.]+ s\*\* \(`ls` in `sub`\)\n\nOutput:\n```\nf\n```\n\nStandard error:/,
    )
  })

  it('says what is wrong with a command that cannot be started [S2.15]', async () => {
    const folder = await temporaryFolder('shell')
    writeFileSync(path.join(folder, 'plain'), 'x')
    const shell = caller('shell_cmd', folder)
    expect((await shell({ command: 'ls -la' })).content).toContain('its arguments go into parameters')
    expect((await shell({ command: './plain' })).content).toContain('not executable')
    expect((await shell({ command: 'echo', parameters: ['a\0b'] })).content).toContain('NUL')
    expect((await shell({ command: 'echo', args: ['a'] })).content).toContain('if you mean \\"parameters\\"')
    const many = Array.from({ length: 1_000 }, () => 'x'.repeat(1_000))
    const long = await shell({ command: 'true', parameters: [...many, 'x'.repeat(30_000)] })
    expect(long.ok).toBe(false)
  })

  it('ends the whole group when its time is over, or when the call is cancelled [S2.15] [S2.04]', async () => {
    const folder = await temporaryFolder('shell')
    const shell = caller('shell_cmd', folder)
    const forking = (file: string) =>
      node(`const { spawn } = require('node:child_process')
        const child = spawn(process.execPath, ['-e', 'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000)'])
        require('node:fs').writeFileSync('${file}.new', String(child.pid))
        require('node:fs').renameSync('${file}.new', '${file}')
        setInterval(() => {}, 1000)`)
    const pidIn = (file: string) => Number(readFileSync(path.join(folder, file), 'utf8'))
    const late = await shell({ ...forking('late'), timeout: 3_000 })
    expect(late).toMatchObject({ ok: false })
    expect(late.content).toContain('its time was over')
    await expect.poll(() => isAlive(pidIn('late'))).toBe(false)
    const controller = new AbortController()
    const running = shell(forking('gone'), { abortSignal: controller.signal })
    await expect.poll(() => existsSync(path.join(folder, 'gone'))).toBe(true)
    controller.abort()
    expect((await running).content).toContain('cancelled')
    await expect.poll(() => isAlive(pidIn('gone'))).toBe(false)
  })

  it('ends what a program leaves running, and does not wait for who holds its output [S2.15]', async () => {
    const folder = await temporaryFolder('shell')
    const shell = caller('shell_cmd', folder)
    const left = { command: 'sh', parameters: ['-c', 'sleep 600 & echo $!'] }
    const pid = Number(readValue(await shell({ ...left, ...json })).stdout)
    await expect.poll(() => isAlive(pid)).toBe(false)
    // Out of the group by a session of its own, with the output in its hands.
    const leaving =
      'setsid sh -c "echo \\$\\$ > pid; exec sleep 600" & while [ ! -s pid ]; do sleep 0.05; done'
    const value = readValue(await shell({ command: 'sh', parameters: ['-c', leaving], ...json }))
    const escaped = Number(readFileSync(path.join(folder, 'pid'), 'utf8'))
    expect(value).toMatchObject({ exitCode: 0, ended: null })
    process.kill(escaped, 'SIGKILL')
  })

  it('keeps head and tail of what a program says, and ends one that does not stop [S2.15]', async () => {
    const shell = caller('shell_cmd', await temporaryFolder('shell'))
    const long = await shell({ ...node('process.stdout.write("a".repeat(1e6) + "end")'), ...json })
    const { stdout } = readValue(long) as { stdout: string }
    expect(stdout).toMatch(/^a+\n\[… \d+ bytes cut …\]\na+end$/)
    expect(stdout.length).toBeLessThan(30_000)
    const flood = await shell({ command: 'yes' })
    expect(flood).toMatchObject({ ok: false })
    expect(flood.content).toContain('did not stop writing output')
  })

  it('gives a program none of our variables but harmless ones [S2.15]', async () => {
    process.env.CAISSON_TEST_SECRET = 'hush'
    try {
      const shell = caller('shell_cmd', await temporaryFolder('shell'))
      const { stdout } = readValue(await shell({ command: 'env', ...json })) as { stdout: string }
      expect(stdout).toContain('PATH=')
      expect(stdout).not.toContain('hush')
    } finally {
      delete process.env.CAISSON_TEST_SECRET
    }
  })

  it('cannot break out of the fence around its output [S2.15]', async () => {
    const shell = caller('shell_cmd', await temporaryFolder('shell'))
    const { content } = await shell({ command: 'echo', parameters: ['```\n# not ours\n`````'] })
    expect(content).toContain('\n``````\n```\n# not ours\n`````\n``````')
  })
})
