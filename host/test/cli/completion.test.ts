import path from 'node:path'
import { execa } from 'execa'
import { describe, expect, it } from 'vitest'

const bin = path.join(import.meta.dirname, '../../cli/bin.ts')
const caisson = async (...argv: string[]): Promise<string> =>
  (await execa(process.execPath, ['--conditions=caisson-source', bin, ...argv])).stdout

/** What the shell would offer behind these words; the last is what was typed of the next one. */
async function offered(...words: string[]): Promise<string[]> {
  const lines = (await caisson('complete', '--', ...words)).split('\n')
  expect(lines.at(-1)).toMatch(/^:\d+$/)
  return lines.slice(0, -1).map((line) => line.split('\t')[0] ?? '')
}

describe('shell completion', () => {
  it('offers commands, subcommands, options and their values [H.01]', async () => {
    expect(await offered('ru')).toEqual(['run', 'runs'])
    expect(await offered('workspace', '')).toEqual(expect.arrayContaining(['diff', 'apply', 'undo']))
    expect(await offered('run', '--appr')).toEqual(['--approve', '--approve-plan'])
    expect(await offered('completion', '')).toEqual(expect.arrayContaining(['bash', 'zsh', 'fish']))
    expect(await offered('')).not.toContain('complete')
  })

  it.each(['bash', 'zsh', 'fish'])(
    'prints a script for %s that asks this command line [H.01]',
    async (shell) => {
      const script = await caisson('completion', shell)
      expect(script).toMatch(/caisson complete -- /)
      if (shell === 'bash') await execa('bash', ['-n'], { input: script })
    },
  )
})
