// What of an editor's prompt becomes a task, and which answers of an editor are answers. No process is started.
import { symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import type { ContentBlock } from '@agentclientprotocol/sdk'
import { describe, expect, it } from 'vitest'
import { png } from '#specs/testing/images.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { answerInForm, answerInWords, answerOf, choicesOf } from '../../acp/permission.ts'
import { type PromptPlace, readPrompt } from '../../acp/prompt.ts'
import { fenced, placeOf } from '../../acp/tool-calls.ts'
import { pathInWorkspace } from '../../acp/workspace-files.ts'
import { Host } from '../../index.ts'

const text = (words: string): ContentBlock => ({ type: 'text', text: words })
const resource = (uri: string, content: string): ContentBlock => ({
  ...{ type: 'resource', resource: { uri, text: content } },
})

/** The directory, as a session has it. */
async function placeAt(workspace: string): Promise<PromptPlace> {
  const home = await temporaryFolder('home')
  const host = new Host({ env: { HOME: home, CAISSON_HOME: path.join(home, 'state') } })
  return { workspace, inspect: (paths, contents) => host.inspectPaths(paths, { workspace, contents }) }
}

describe('a prompt', () => {
  it.each([
    ['file:///ws/a.txt', 'a.txt'],
    ['file:///ws/src/a%20b.ts#L3', 'src/a b.ts'],
    ['file:///ws', undefined],
    ['file:///ws/../etc/passwd', undefined],
    ['file:///ws/%2e%2e/etc/passwd', undefined],
    ['file:///wsx/a.txt', undefined],
    ['file://host/ws/a.txt', undefined],
    ['https://example.com/ws/a.txt', undefined],
    ['no address', undefined],
    ['file:///ws/a%00b', undefined],
  ])('has %s as the path %j [H.03]', (uri, expected) => {
    expect(pathInWorkspace('/ws', uri)).toBe(expected)
  })

  it('has images of the workspace, unsaved text as contents of files, and other text as sections [H.03]', async () => {
    const workspace = await temporaryFolder('acp-prompt')
    await writeFile(path.join(workspace, 'a.txt'), 'saved\r\nlines\r\n')
    await writeFile(path.join(workspace, 'same.txt'), 'same\r\n')
    await writeFile(path.join(workspace, 'known.txt'), 'saved\n')
    const uri = (name: string) => pathToFileURL(path.join(workspace, name)).href
    const blocks: ContentBlock[] = [
      text('See '),
      { type: 'resource_link', name: 'x', uri: uri('x.png') },
      resource(uri('a.txt'), 'newer\nlines\n'),
      resource(uri('same.txt'), 'same\n'),
      resource(uri('new.txt'), 'only in the editor\n'),
      resource(uri('none/new.txt'), 'without a folder\n'),
      resource('https://example.com/page', 'a page'),
    ]
    const place = await placeAt(workspace)
    const readFile = async (file: string) => (file.endsWith('known.txt') ? 'typed\n' : undefined)
    const task = await readPrompt(blocks, { ...place, readFile, known: ['known.txt'] })
    expect(task.images).toEqual(['x.png'])
    expect(task.contents).toEqual({
      ...{ 'a.txt': 'newer\r\nlines\r\n', 'new.txt': 'only in the editor\n', 'known.txt': 'typed\n' },
    })
    expect(task.context).toEqual({
      ...{ 'Content of https://example.com/page': 'a page', 'Content of same.txt': 'same\n' },
      'Content of none/new.txt': 'without a folder\n',
    })
  })

  it('never sends what likely holds secrets, saved or not, and says so [H.03 W.02]', async () => {
    const workspace = await temporaryFolder('acp-prompt')
    const files = { '.env': 'KEY=abc\n', id_rsa: 'abc\n', '.npmrc': '//r/:_authToken=abc\n' }
    for (const [name, content] of Object.entries(files)) await writeFile(path.join(workspace, name), content)
    await symlink('.env', path.join(workspace, 'notes.md'))
    const uri = (name: string) => pathToFileURL(path.join(workspace, name)).href
    const asked: string[] = []
    const readFile = async (file: string) => {
      asked.push(file)
      return 'KEY=abc not saved\n'
    }
    const task = await readPrompt(
      [
        text('See '),
        { type: 'resource_link', name: 'x', uri: uri('.env') },
        { type: 'resource_link', name: 'x', uri: uri('notes.md') },
        resource(uri('id_rsa'), 'abc\n'),
        resource(uri('.npmrc'), '//r/:_authToken=abc\n'),
        resource('file:///home/u/.ssh/config', 'abc'),
        resource('zed:///agent/file?path=%2Fhome%2Fu%2F.env', 'abc'),
      ],
      { ...(await placeAt(workspace)), readFile },
    )
    expect([asked, task.context, task.contents]).toEqual([[], {}, {}])
    expect(JSON.stringify(task)).not.toContain('abc')
    for (const name of ['.env', 'id_rsa', '.npmrc', '.ssh/config'])
      expect(task.notes.join('\n')).toContain(`${name}\` likely holds secrets`)
  })

  it('has pasted images as files of the VM alone, where the model sees images [H.03]', async () => {
    const workspace = await temporaryFolder('acp-prompt')
    const place = await placeAt(workspace)
    const image = (data: string): ContentBlock => ({ type: 'image', data, mimeType: 'image/png' })
    const data = png(8, 8).toString('base64')
    const task = await readPrompt([text('What is it?'), image(data)], place)
    const [name = ''] = task.images
    expect(name).toMatch(/^pasted-image-[0-9a-f]{12}\.png$/)
    expect(task.contents).toEqual({ [name]: { base64: data } })
    const refuseImages = async () => 'the model m does not see images'
    for (const [words, refused] of [
      ['does not see images', readPrompt([text('x'), image(data)], { ...place, refuseImages })],
      ['the pasted image cannot be used', readPrompt([text('x'), image('AAAA')], place)],
    ] as const)
      await expect(refused).rejects.toMatchObject({ code: -32602, message: expect.stringContaining(words) })
  })

  it('asks about each file that it names, however many, and sends nothing that is kept out [H.03 W.02]', async () => {
    const workspace = await temporaryFolder('prompt')
    const names = Array.from({ length: 600 }, (_, index) => `f${index}.txt`)
    const blocks = names.map((name) => resource(pathToFileURL(path.join(workspace, name)).href, 'kept out'))
    const asked: number[] = []
    const task = await readPrompt([text('Read them.'), ...blocks], {
      workspace,
      inspect: async (paths) => {
        asked.push(paths.length)
        return Object.fromEntries(paths.map((name) => [name, 'rules_changed' as const]))
      },
    })
    expect(asked).toEqual([256, 256, 88])
    expect([task.context, task.contents, task.notes.length]).toEqual([{}, {}, 600])
  })

  it('takes nothing from where a link of the workspace leads [H.03]', async () => {
    const [workspace, elsewhere] = [await temporaryFolder('acp-prompt'), await temporaryFolder('elsewhere')]
    await writeFile(path.join(elsewhere, 'key'), 'a key\r\n')
    await symlink(path.join(elsewhere, 'key'), path.join(workspace, 'notes.md'))
    await symlink(elsewhere, path.join(workspace, 'docs'))
    const asked: string[] = []
    // Editors give lines of their own, so the content differs from the file's.
    const readFile = async (file: string) => {
      asked.push(file)
      return 'a key\n'
    }
    const links = ['notes.md', 'docs/key'].map(
      (name): ContentBlock => ({
        ...{ type: 'resource_link', name, uri: pathToFileURL(path.join(workspace, name)).href },
      }),
    )
    const task = await readPrompt([text('See '), ...links], { ...(await placeAt(workspace)), readFile })
    expect([asked, task.context]).toEqual([[], {}])
    expect(task.prompt.match(/not a file of the workspace/g)).toHaveLength(2)
  })

  it.each<[string, ContentBlock[]]>([
    ['empty', [text(' \n')]],
    ['the prompt has more', [text('x'.repeat(262_145))]],
    ['too much text', [text('x'), resource('file:///ws/a', 'x'.repeat(262_145))]],
    [
      'too much text',
      [text('x'), ...['a', 'b', 'c'].map((name) => resource(`file:///ws/${name}`, 'x'.repeat(200_000)))],
    ],
    ['type audio', [text('x'), { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' }]],
    [
      'at most 8 images',
      Array.from({ length: 9 }, (_, at) => ({
        ...{ type: 'resource_link' as const, name: 'x', uri: `file:///ws/${at}.png` },
      })),
    ],
  ])('is refused where it is no task: %s [H.03]', async (words, blocks) => {
    const workspace = await temporaryFolder('acp-prompt')
    const here = JSON.parse(JSON.stringify(blocks).replaceAll('/ws/', `${workspace}/`)) as ContentBlock[]
    const refused = await readPrompt(here, await placeAt(workspace)).catch((error: Error) => error)
    expect(refused).toMatchObject({ code: -32602, message: expect.stringContaining(words) })
  })
})

describe('a hostile prompt', () => {
  it('names a file like a property of objects: its content is held back as that of any other [H.03 S1.11]', async () => {
    const workspace = await temporaryFolder('acp-prompt')
    const task = await readPrompt([text('Read '), resource(`file://${workspace}/__proto__`, 'held back')], {
      ...(await placeAt(workspace)),
      inspect: async () => Object.fromEntries([['__proto__', 'rules_changed']]),
    })
    expect(JSON.stringify([task.context, task.contents])).not.toContain('held back')
    expect(task.notes).toHaveLength(1)
  })

  it('has content of a type with a long name: the refusal is short [H.03]', async () => {
    const odd = { type: 'x'.repeat(10_000) } as unknown as ContentBlock
    const place = await placeAt(await temporaryFolder('acp-prompt'))
    const refused = await readPrompt([odd], place).catch((error: Error) => error)
    expect((refused as Error).message.length).toBeLessThan(300)
  })
})

describe('an answer of an editor', () => {
  const offered = [
    { label: 'yes, this once', decision: 'allow', scope: 'once' },
    { label: 'yes, always', decision: 'allow', scope: 'always', reach: 'host' },
    { label: 'no', decision: 'deny', scope: 'once' },
    { label: 'no, to all', decision: 'deny', scope: 'run' },
  ] as const

  it('is one of those that the question accepts, with its scope and reach; nothing else is an answer [H.03]', () => {
    const choices = choicesOf(offered, undefined, (words) => words)
    expect(choices.map(({ option }) => option.kind)).toEqual([
      ...['allow_once', 'allow_always', 'reject_once', 'reject_always'],
    ])
    const chosen = (optionId: string) => answerOf(choices, { outcome: { outcome: 'selected', optionId } })
    expect(chosen('answer-2')).toEqual({ decision: 'allow', scope: 'always', reach: 'host' })
    expect([chosen('answer-5'), chosen('allow'), chosen('__proto__')]).toEqual([
      undefined,
      undefined,
      undefined,
    ])
    expect(answerOf(choices, { outcome: { outcome: 'cancelled' } })).toBeUndefined()
  })

  it('to a question has the form that the question needs [H.03]', () => {
    const number = { question: 'How many?', kind: 'number' } as const
    expect(answerInWords(number, ' 3 ')).toMatchObject({ answer: 3 })
    expect(['', 'many', 'NaN', 'Infinity'].map((words) => answerInWords(number, words))).toEqual(
      Array(4).fill(undefined),
    )
    const accept = (content: Record<string, string | number>) =>
      answerInForm(number, { action: 'accept', content })
    expect(accept({ answer: 4 })).toMatchObject({ decision: 'allow', answer: 4 })
    expect([accept({ answer: '4' }), accept({}), answerInForm(number, { action: 'cancel' })]).toEqual(
      Array(3).fill(undefined),
    )
    expect(answerInForm(number, { action: 'decline' })).toEqual({ decision: 'deny', scope: 'once' })
  })
})

describe('what the agent claims', () => {
  it('points into the workspace alone, and no output ends its block [H.03]', () => {
    const paths = ['a.txt', './src/', '/mnt/workspace/b', '../x', '/etc/passwd', 'a/../../b', '']
    expect(paths.map((claimed) => placeOf('/ws', claimed))).toEqual([
      ...['/ws/a.txt', '/ws/src', '/ws/b'],
      ...[undefined, undefined, undefined, undefined],
    ])
    expect(fenced('a\n````\nb')).toBe('`````\na\n````\nb\n`````')
  })
})
