import { chmod, chown, mkdir, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { KeySource } from '../../keys/key-source.ts'
import { checkKey, describeSource, inspectKey, resolveKey } from '../../keys/keys.ts'
import { closeToPrograms } from '../../processes/programs.ts'
import { runProgram } from '../../processes/run-program.ts'

const key = 'nvapi-abcdefghijklmnop'

async function place(env: Record<string, string> = {}) {
  const home = await temporaryFolder('keys')
  return { folders: { home }, env: { HOME: home, PATH: process.env.PATH ?? '', ...env } }
}

async function revealed(source: KeySource, at: Awaited<ReturnType<typeof place>>): Promise<string> {
  const read = await resolveKey(source, at)
  return read.ok ? read.value.reveal() : `refused: ${read.error}`
}

/** A program that only its user can write to. */
async function program(script: string): Promise<string> {
  const file = path.join(await temporaryFolder('program'), 'print-key')
  await writeFile(file, `#!/bin/sh\n${script}\n`, { mode: 0o700 })
  return file
}

describe('a key', () => {
  it('comes from a variable, without the space around it [S0.09]', async () => {
    const at = await place({ MY_KEY: ` ${key}\n`, EMPTY: ' ' })
    expect(await revealed({ env: 'MY_KEY' }, at)).toBe(key)
    expect(await revealed({ env: 'EMPTY' }, at)).toContain('the variable EMPTY is not set')
    expect(await revealed({ env: 'toString' }, at)).toContain('is not set')
    expect(await inspectKey({ env: 'MY_KEY' }, at)).toEqual({ ok: true, value: undefined })
  })

  it('comes from a file, with one line break at its end taken off [S0.09]', async () => {
    const at = await place()
    const file = path.join(at.folders.home, 'key')
    await writeFile(file, `${key}\n`, { mode: 0o600 })
    expect(await revealed({ file: '~/key' }, at)).toBe(key)
    expect(await revealed({ file }, at)).toBe(key)
    expect(await inspectKey({ file }, at)).toMatchObject({ ok: true })
    await writeFile(file, `${key}\n\n`)
    expect(await revealed({ file }, at)).toContain('contains a line break')
  })

  it('is not taken from a file that others can read or change, and the remedy is named [S0.09]', async () => {
    const at = await place()
    const file = path.join(at.folders.home, 'key')
    await writeFile(file, key, { mode: 0o600 })
    for (const mode of [0o644, 0o640, 0o604, 0o666]) {
      await chmod(file, mode)
      expect(await revealed({ file }, at)).toMatch(/^refused: .*chmod/)
      expect(await inspectKey({ file }, at)).toMatchObject({ ok: false })
    }
    await chmod(file, 0o600)
    await chmod(at.folders.home, 0o777)
    expect(await revealed({ file }, at)).toContain(`is reached through ${at.folders.home}`)
    await chmod(at.folders.home, 0o700)
    expect(await revealed({ file: 'key' }, at)).toContain('relative path')
    expect(await revealed({ file: path.join(at.folders.home, 'none') }, at)).toContain('cannot be read')
    expect(await revealed({ file: '/dev/zero' }, at)).toContain('refused')
    await mkdir(path.join(at.folders.home, 'folder'), { mode: 0o700 })
    expect(await revealed({ file: '~/folder' }, at)).toContain('is not a file')
    await symlink(file, path.join(at.folders.home, 'link'))
    expect(await revealed({ file: '~/link' }, at)).toBe(key)
  })

  it('is not taken from a file of another user, root included [S0.09]', async () => {
    const at = await place()
    let file = '/etc/hostname'
    let owner = 0
    if (process.getuid?.() === 0) {
      file = path.join(at.folders.home, 'key')
      owner = 12_345
      await writeFile(file, key, { mode: 0o600 })
      await chown(file, owner, owner)
    }
    expect(await revealed({ file }, at)).toContain(`belongs to user ${owner}`)
  })

  it('comes from the first line that a command prints, run without a shell and not in the current directory [S0.09]', async () => {
    const at = await place()
    const tool = await program(`[ "$(pwd)" = "$HOME" ] || exit 9\nprintf '%s\\n' "$1" second`)
    expect(await revealed({ command: [tool, `${key};$(id)`] }, at)).toBe(`${key};$(id)`)
    const byName = { ...at, env: { ...at.env, PATH: path.dirname(tool) } }
    expect(await revealed({ command: ['print-key', key] }, byName)).toBe(key)
    expect(await inspectKey({ command: ['print-key'] }, byName)).toMatchObject({ ok: true })
  })

  it('never shows what a command prints, and shows what it complains about [S0.09]', async () => {
    const at = await place()
    const failing = await revealed(
      { command: [await program(`echo ${key}; echo "no vault ${key}" >&2; exit 3`)] },
      at,
    )
    expect(failing).toContain('ended with 3; it said: no vault [secret]')
    expect(failing).not.toContain(key)
    const silent = await revealed({ command: [await program('echo; echo later; echo why >&2')] }, at)
    expect(silent).toContain('printed no key as its first line; it said: why')
    const binary = await revealed({ command: [await program(`printf '${key}\\001\\n'`)] }, at)
    expect(binary).toContain('invalid in a header')
    expect(binary).not.toContain(key)
    const flood = await revealed({ command: [await program('yes | head -c 1000000')] }, at)
    expect(flood).toContain('printed more than')
  })

  it('comes from no program of a workspace, of another user, or by a relative path [S0.09 V.10]', async () => {
    const at = await place()
    const tool = await program(`echo ${key}`)
    expect(await revealed({ command: ['./print-key'] }, at)).toContain('is a relative path')
    expect(await revealed({ command: ['/nowhere/print-key'] }, at)).toContain('does not exist')
    // A program of the system by the same name is not what was meant.
    expect(await revealed({ command: ['/nowhere/echo', key] }, at)).toContain('does not exist')
    await chmod(tool, 0o777)
    expect(await revealed({ command: [tool] }, at)).toContain('can be written by others')
    await chmod(tool, 0o700)
    expect(await revealed({ command: [tool] }, at)).toBe(key)
    closeToPrograms(path.dirname(tool))
    expect(await revealed({ command: [tool] }, at)).toContain('lies in a workspace')
    expect(await inspectKey({ command: [tool] }, at)).toMatchObject({ ok: false })
  })

  it('is described by its source and checked without being shown [S0.09]', () => {
    expect(describeSource({ keyring: 'nvidia' })).toBe('the keyring\'s entry "nvidia"')
    expect(describeSource({ command: ['op', 'read', 'op://x'] })).toBe('the command "op"')
    for (const text of ['', '  ', `${key}\nx: y`, ` ${key}`, 'ключ', 'k'.repeat(10_000)]) {
      expect(checkKey(text)).toMatch(/must contain only the key/)
      if (text.trim() !== '') expect(checkKey(text)).not.toContain(text)
    }
    expect(checkKey(key)).toBeUndefined()
  })
})

describe('a program that is run for its output', () => {
  const options = { env: { PATH: '/usr/bin:/bin' }, timeoutMs: 30_000, maxBytes: 1_000 }

  it('is ended at its deadline, also when it ignores that it shall end [S0.09]', async () => {
    const stubborn = ['-c', "trap '' TERM INT HUP; sleep 60 & wait"]
    const ran = await runProgram('/bin/sh', stubborn, { ...options, timeoutMs: 200 })
    expect(ran).toEqual({ ok: false, error: 'did not end within 0.2 s' })
  })

  it('is over when it ends, though it left a process behind that holds its output [S0.09]', async () => {
    const ran = await runProgram('/bin/sh', ['-c', 'sleep 20 & echo out; exit 7'], options)
    expect(ran).toMatchObject({ ok: true, value: { code: 7, stdout: 'out\n' } })
  })

  it('need not read what it is given, and is distinguished from one that cannot be run [S0.09]', async () => {
    expect(await runProgram('/bin/true', [], { ...options, input: 'x'.repeat(1_000_000) })).toMatchObject({
      ok: true,
    })
    expect(await runProgram('/nowhere', [], options)).toMatchObject({
      ok: false,
      error: expect.stringContaining('cannot be run'),
    })
  })
})
