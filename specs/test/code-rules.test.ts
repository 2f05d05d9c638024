// What `npm run check` refuses, shown on code that breaks each rule.
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { cruise } from 'dependency-cruiser'
import { describe, expect, it } from 'vitest'
import rules from '../../scripts/dependencies.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'

const root = path.join(import.meta.dirname, '../..')
const bin = (name: string) => path.join(root, 'node_modules/.bin', name)

async function folderWith(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporaryFolder('code-rules')
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true })
    writeFileSync(path.join(folder, name), text)
  }
  return folder
}

describe('the check of the code', () => {
  it('covers types, style and import directions [S0.15]', () => {
    const { type, scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
    expect(type).toBe('module')
    const parts = [...String(scripts.check).matchAll(/npm run (\S+)/g)].map(([, name = '']) => scripts[name])
    expect(parts.join('\n')).toMatch(
      /tsc --noEmit\nbiome check --error-on-warnings \.\n.*check-dependencies\.ts/,
    )
  })

  it('refuses code that is not strictly typed [S0.15]', async () => {
    const folder = await folderWith({
      'tsconfig.json': JSON.stringify({ extends: path.join(root, 'tsconfig.json'), include: ['*.ts'] }),
      'a.ts':
        'export const length = (text) => text.length\nexport const first = (list: string[]): string => list[0]\n',
    })
    const options = ['-p', folder, '--types', '', '--pretty', 'false']
    const { status, stdout } = spawnSync(bin('tsc'), options, { encoding: 'utf8' })
    expect(status).not.toBe(0)
    expect(stdout).toMatch(/TS7006/)
    expect(stdout).toMatch(/TS2322/)
  }, 60_000)

  it.each([
    ['another format', 'export const a = "a";\n', 'format'],
    ['the type any', 'export const a = (b: any): unknown => b\n', 'noExplicitAny'],
    ['an enum', 'export enum A {\n  b = 1,\n}\n', 'noEnum'],
  ])('refuses %s [S0.15]', async (_name, text, rule) => {
    const folder = await folderWith({ 'a.ts': text })
    execFileSync('git', ['init', '-q', folder])
    writeFileSync(path.join(folder, 'biome.json'), readFileSync(path.join(root, 'biome.json')))
    const { status, stdout, stderr } = spawnSync(bin('biome'), ['check', '--error-on-warnings', 'a.ts'], {
      cwd: folder,
      encoding: 'utf8',
    })
    expect(status).not.toBe(0)
    expect(stdout + stderr).toContain(rule)
  })

  it.each([
    ['host', 'agent', 'host-never-imports-agent'],
    ['agent', 'host', 'agent-never-imports-host'],
    ['runtime', 'agent', 'runtime-imports-specs-alone'],
    ['specs', 'host', 'specs-imports-nobody'],
    ['host/vm', 'host/runs', 'host/vm-imports-lower-layers'],
    ['host/keys', 'host/locks', 'host/keys-imports-lower-layers'],
    ['agent/tools', 'agent/plan', 'agent/tools-imports-lower-layers'],
    ['runtime/llm', 'runtime/generate', 'runtime/llm-imports-lower-layers'],
  ])('refuses an import of %s from %s [S0.15]', async (from, to, rule) => {
    const folder = await folderWith({
      [`${from}/a.ts`]: `import '${path.relative(from, to)}/b.ts'\n`,
      [`${to}/b.ts`]: 'export const b = 1\n',
    })
    const { output } = await cruise([from], {
      ruleSet: { forbidden: rules.forbidden },
      validate: true,
      baseDir: folder,
    } as never)
    const { violations } = (output as { summary: { violations: { rule: { name: string } }[] } }).summary
    expect(violations.map((found) => found.rule.name)).toEqual([rule])
  })
})
