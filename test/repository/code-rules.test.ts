// What `npm run check` refuses, shown on code that breaks each rule.
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { cruise } from 'dependency-cruiser'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import rules from '../../scripts/dependencies.ts'
import { findLongSentences, findWideComments, findWords, rules as wordRules } from '../../scripts/words.ts'

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
      /tsc --noEmit && tsc --noEmit -p page && tsc --noEmit -p vscode\n.*biome check --error-on-warnings \. .*check-words\.ts\n.*check-dependencies\.ts/,
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
    ['host', 'agent', 'host-imports-specs-alone'],
    ['host/test/a', 'agent', 'host-imports-specs-alone'],
    ['host/test/a', 'runtime', 'host-imports-specs-alone'],
    ['agent', 'host', 'agent-imports-runtime-and-specs'],
    ['agent/test/a', 'host/test/a', 'agent-imports-runtime-and-specs'],
    ['agent/test/a', 'runtime/test/a', 'agent-imports-runtime-and-specs'],
    ['runtime', 'agent', 'runtime-imports-specs-alone'],
    ['runtime/test/a', 'host/test/a', 'runtime-imports-specs-alone'],
    ['specs', 'host', 'specs-imports-nobody'],
    ['specs/test/a', 'scripts', 'specs-imports-nobody'],
    ['vm-image/test', 'host/image', 'image-imports-nobody'],
    ['host/test/a', 'test/link', 'packages-import-shared-test-support-alone'],
    ['test/support', 'host', 'shared-test-support-imports-specs-alone'],
    ['test/link', 'test/daemon', 'test/link-imports-lower-layers'],
    ['host/runs', 'host/test/a', 'product-imports-no-tests'],
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

describe('the check of words', () => {
  const phrases = wordRules.flatMap((rule) => rule.phrases)

  it.each(phrases)('refuses "%s" in a sentence, across lines and in names [S0.15]', (phrase) => {
    const [first = '', ...rest] = phrase.split(' ')
    const camelCase = [first, ...rest.map((word) => `${word[0]?.toUpperCase()}${word.slice(1)}`)].join('')
    const found = (text: string) => findWords('a.ts', text).map(({ line, problem }) => `${line} ${problem}`)
    const expected = (line: number) => [expect.stringContaining(`${line} "${phrase}": use `)]
    expect(found(`\n// It ${phrase} here.`)).toEqual(expected(2))
    expect(found(`// It ${phrase.replaceAll(' ', '\n// ')} here.`)).toEqual(expected(1))
    expect(found(`const ${camelCase}File = 1`)).toEqual(expected(1))
    expect(found(`const a = '${phrase}'`)).toEqual(expected(1))
    expect(found(`const A_${phrase.replaceAll(' ', '_').toUpperCase()}_B = 1`)).toEqual(expected(1))
    expect(findWords(`host/${phrase.replaceAll(' ', '-')}-file.ts`, '').map(({ line }) => line)).toEqual([0])
  })

  it('accepts other words, also those that a forbidden one is part of [S0.15]', () => {
    const text =
      '// The snapshot of a layer. A desktop, an amended belay and a shell.\nconst layout = relay\n'
    expect(findWords('host/layers.ts', text)).toEqual([])
  })

  it('refuses wide comments, and no wide code [S0.15]', () => {
    const wide = 'x'.repeat(130)
    const text = `const a = '${wide}'\n// ${wide}\n/** ${wide} */\nconst b = 1 // ${wide}\nconst c = 'https://${wide}'\n`
    expect(findWideComments('a.ts', text).map(({ line }) => line)).toEqual([2, 3, 4])
  })

  it('refuses long sentences of documents, and counts code as one word [S1.15]', () => {
    const words = (count: number) => Array.from({ length: count }, () => 'word').join(' ')
    const text = `${words(20)}. A ${words(26)}.\n\n- ${words(24)} \`a b c\`\n- ${words(13)}\n  ${words(13)}\n\n\`\`\`\n${words(60)}\n\`\`\`\n`
    expect(findLongSentences('docs/a.md', text).map(({ line }) => line)).toEqual([1, 4])
    expect(findLongSentences('specs/a.md', text)).toEqual([])
    expect(findLongSentences('specs/a.md', `A ${words(200)}.`)).toHaveLength(1)
  })
})
