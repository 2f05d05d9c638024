// The user's skills as the host reads them and gives them to a guest.
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { SkillHead, SkillLoadAnswer } from '#specs/protocol/extension.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Config } from '../../config/schema.ts'
import { inspectSections } from '../../doctor/inspect-config.ts'
import { skillRoots, UserSkills } from '../../skills/user-skills.ts'

async function place() {
  const base = await temporaryFolder('skills')
  const write = (file: string, content: string | Uint8Array, mode = 0o644): void => {
    const target = path.join(base, file)
    mkdirSync(path.dirname(target), { recursive: true, mode: 0o755 })
    writeFileSync(target, content, { mode })
  }
  const skill = (folder: string, name: string, description: string, text = `Do ${name}.`): void =>
    write(`${folder}/SKILL.md`, `---\nname: ${name}\ndescription: ${description}\n---\n${text}\n`)
  const read = (...roots: string[]) => UserSkills.read(roots.map((root) => path.join(base, root)))
  return { base, write, skill, read }
}

describe('the roots of skills', () => {
  it('are those of the configuration, else the folder beside it [A.09]', () => {
    const folders = { config: '/c/caisson' }
    expect(skillRoots(Config.parse({}), folders)).toEqual(['/c/caisson/skills'])
    const config = Config.parse({ skills: { roots: ['~/skills', '/usr/share/skills'] } })
    expect(skillRoots(config, folders, { HOME: '/h' })).toEqual(['/h/skills', '/usr/share/skills'])
    expect(Config.safeParse({ skills: { roots: ['skills'] } }).success).toBe(false)
  })
})

describe("the user's skills", () => {
  it('are listed in a line each, and loaded whole with the files beside them [A.09 S2.14]', async () => {
    const { write, skill, read } = await place()
    skill('one', 'tidy', 'Tidies up')
    write('one/scripts/run.sh', '#!/bin/sh\necho ran\n', 0o755)
    write('one/data.bin', Uint8Array.of(0, 255, 1))
    skill('two', 'tidy', 'The later one')
    const first = await read('one')
    expect(first.heads()).toEqual([{ skillId: 'tidy', description: 'Tidies up' }])
    const loaded = SkillLoadAnswer.parse(await first.load('tidy'))
    expect(loaded).toMatchObject({ instructions: 'Do tidy.', leftOut: [] })
    expect(loaded.files.map(({ path: file, mode, base64 }) => [file, mode, base64])).toEqual([
      ['data.bin', '0644', 'AP8B'],
      ['scripts/run.sh', '0755', Buffer.from('#!/bin/sh\necho ran\n').toString('base64')],
    ])
    expect(await first.load('other')).toBeNull()
    expect((await read('one', 'two')).heads()).toEqual([{ skillId: 'tidy', description: 'The later one' }])
  })

  it('are not taken from a folder or a file that others can change [A.09]', async () => {
    const { base, write, skill, read } = await place()
    skill('root/mine', 'mine', 'fine')
    skill('root/shared', 'shared', 'not fine')
    chmodSync(path.join(base, 'root/shared'), 0o777)
    write('root/mine/run.sh', 'echo ran\n')
    chmodSync(path.join(base, 'root/mine/run.sh'), 0o666)
    const skills = await read('root')
    expect(skills.heads().map(({ skillId }) => skillId)).toEqual(['mine'])
    expect(skills.problems).toMatchObject([{ problem: expect.stringContaining('can be written by others') }])
    expect(await skills.load('shared')).toBeNull()
    expect(await skills.load('mine')).toMatchObject({ files: [], leftOut: ['run.sh'] })
  })

  it('say what cannot be used, and let nothing out of their root [A.09]', async () => {
    const { base, write, skill, read } = await place()
    write('secret', 'password')
    skill('root/a', 'a', 'fine')
    symlinkSync(path.join(base, 'secret'), path.join(base, 'root/a/leak'))
    symlinkSync('..', path.join(base, 'root/a/loop'))
    mkdirSync(path.join(base, 'root/b'))
    symlinkSync(path.join(base, 'secret'), path.join(base, 'root/b/SKILL.md'))
    write('root/c/SKILL.md', '---\nname: [\n---\nBody')
    write('root/big/SKILL.md', 'x'.repeat(2 * 1024 * 1024))
    write('root/line/SKILL.md', '---\nname: "a\\nb <b>"\ndescription: "x\\n\\n# Task"\n---\nBody')
    const skills = await read('root')
    expect(skills.heads()).toEqual([
      { skillId: 'a', description: 'fine' },
      { skillId: 'c', description: '' },
      { skillId: 'line', description: 'x # Task' },
    ])
    const problems = Object.fromEntries(
      skills.problems.map((found) => [path.relative(base, found.path), found.problem]),
    )
    expect(problems['root/b/SKILL.md']).toContain('leads out of its root')
    expect(problems['root/big/SKILL.md']).toContain('is larger than')
    expect(problems['root/line/SKILL.md']).toContain('name')
    const loaded = await skills.load('a')
    expect(loaded?.files).toEqual([])
    expect(loaded?.leftOut).toEqual(['leak', 'loop'])
  })

  it('are not read where others can write [H.01 A.09]', async () => {
    const { base, skill, read } = await place()
    skill('open/a', 'a', 'd')
    chmodSync(path.join(base, 'open'), 0o777)
    const skills = await read('open', 'nowhere')
    expect(skills.heads()).toEqual([])
    expect(skills.problems).toMatchObject([{ problem: expect.stringContaining('can be written by others') }])
    const config = Config.parse({ skills: { roots: [path.join(base, 'open')] }, memory: { enabled: false } })
    const facts = await inspectSections(config, { folders: { home: base, config: base }, env: {} })
    expect(facts.filter(({ what }) => what === 'skills' || what === 'memory')).toEqual([
      {
        what: 'skills',
        seen: `0 below ${path.join(base, 'open')}`,
        problem: expect.stringContaining('can be written by others'),
      },
      { what: 'memory', seen: 'switched off' },
    ])
  })

  it('that the configuration names and that are not there are said by config check [A.09]', async () => {
    const { base, skill } = await place()
    skill('there/a', 'a', 'd')
    const folders = { home: base, config: path.join(base, 'no-config') }
    const factsOf = async (given: object) =>
      (await inspectSections(Config.parse(given), { folders, env: {} })).filter(
        ({ what }) => what === 'skills',
      )
    const roots = [path.join(base, 'there'), path.join(base, 'nowhere')]
    expect(await factsOf({ skills: { roots } })).toEqual([
      { what: 'skills', seen: `1 below ${roots.join(', ')}`, problem: `${roots[1]} is not there` },
    ])
    expect(await factsOf({})).toEqual([])
  })

  it('stay within their bounds, whatever their number and size [A.09]', async () => {
    const { write, skill, read } = await place()
    for (let number = 0; number < 300; number++)
      skill(`many/${number}`, `s${number}`, 'd'.repeat(2_000), number === 0 ? 'i'.repeat(500_000) : 'x')
    for (let number = 0; number < 300; number++) write(`many/0/file-${String(number).padStart(3, '0')}`, 'x')
    write('many/0/a-large', new Uint8Array(1024 * 1024 + 1))
    write('many/0/b', new Uint8Array(1024 * 1024))
    write('many/0/c', new Uint8Array(1024 * 1024))
    write('many/0/d', new Uint8Array(1))
    const skills = await read('many')
    expect(skills.heads()).toHaveLength(256)
    for (const head of skills.heads()) SkillHead.parse(head)
    const loaded = SkillLoadAnswer.parse(await skills.load('s0'))
    expect(loaded.instructions).toMatch(/cut: the instructions are longer/)
    expect(loaded.files.map(({ path: file }) => file)).toEqual(['b', 'c'])
    expect(loaded.leftOut.slice(0, 3)).toEqual(['a-large', 'd', 'file-000'])
    expect(Buffer.byteLength(JSON.stringify(loaded))).toBeLessThan(4 * 1024 * 1024)
  })
})
