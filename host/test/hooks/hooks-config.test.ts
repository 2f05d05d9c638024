import { chmodSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { readConfig } from '../../config/load.ts'
import { inspectSections } from '../../doctor/inspect-config.ts'
import { Settings } from '../../settings.ts'

const place = { env: process.env, folders: { home: '/nowhere', config: '/nowhere', locks: '/nowhere' } }
const hook = (fields: string): string => `[[hooks]]\n${fields}\n`

describe('hooks of the configuration', () => {
  it('are read with their defaults; what is none is refused by its place [A.10, H.01]', () => {
    const read = readConfig(hook('point = "after-run"\ncommand = ["notify", "me"]'), 'c')
    expect(read).toMatchObject({
      ok: true,
      value: { hooks: [{ point: 'after-run', command: ['notify', 'me'] }] },
    })
    for (const [fields, place] of [
      ['point = "during-run"\ncommand = ["x"]', 'hooks.0.point'],
      ['point = "before-run"', 'hooks.0.command'],
      ['point = "before-run"\ncommand = []', 'hooks.0.command'],
      ['point = "before-run"\ncommand = ["x"]\ntools = ["a"]', 'hooks.0.tools'],
      ['point = "before-tool"\ncommand = ["x"]\ntools = ["run_*", "shell_cmd"]', 'hooks.0.tools.1'],
      ['point = "before-tool"\ncommand = ["x"]\ntools = ["Run-Bash"]', 'is called run_bash'],
      ['point = "before-run"\ncommand = ["x"]\nonFailure = "ask"', 'hooks.0.onFailure'],
      ['point = "before-run"\ncommand = ["x"]\nshell = true', 'hooks.0'],
    ] as const)
      expect(readConfig(hook(fields), 'c'), fields).toMatchObject({
        ok: false,
        error: expect.stringContaining(place),
      })
  })

  it('whose command is not there stop every run, and the check of the configuration says so [A.10]', async () => {
    const folder = realpathSync(mkdtempSync(path.join(homedir(), '.caisson-hook-test-')))
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const file = path.join(folder, 'guard')
    writeFileSync(file, '#!/bin/sh\n')
    chmodSync(file, 0o755)
    const text = (command: string) =>
      hook(`point = "before-tool"\ntools = ["run_*"]\ncommand = ["${command}"]`)
    const inspect = async (command: string) => {
      const read = readConfig(text(command), 'c')
      if (!read.ok) throw new Error(read.error)
      const facts = await inspectSections(read.value, place)
      const settings = new Settings(place)
      return { fact: facts.find(({ what }) => what === 'hooks.0'), hooks: settings.hooks(read.value) }
    }
    const good = await inspect(file)
    expect(good.fact).toEqual({ what: 'hooks.0', seen: `before-tool of run_*: guard (${file})` })
    expect(await good.hooks).toMatchObject([{ name: 'guard', point: 'before-tool', onFailure: 'deny' }])
    const bad = await inspect('no-such-guard')
    expect(bad.fact).toMatchObject({ stopsRuns: true, problem: expect.stringContaining('no-such-guard') })
    await expect(bad.hooks).rejects.toMatchObject({ code: 'invalid_config' })
  })
})
