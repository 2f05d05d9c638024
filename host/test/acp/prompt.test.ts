// What of an editor's prompt becomes a task, and which answers of an editor are answers. No process is started.
import { symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import type { ContentBlock } from '@agentclientprotocol/sdk'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { answerInForm, answerInWords, answerOf, choicesOf } from '../../acp/permission.ts'
import { pathInWorkspace, readPrompt } from '../../acp/prompt.ts'
import { fenced, placeOf } from '../../acp/tool-calls.ts'

const text = (words: string): ContentBlock => ({ type: 'text', text: words })
const resource = (uri: string, content: string): ContentBlock => ({
  ...{ type: 'resource', resource: { uri, text: content } },
})

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

  it('has images of the workspace, and contents as sections that say what was not saved [H.03]', async () => {
    const workspace = await temporaryFolder('acp-prompt')
    await writeFile(path.join(workspace, 'a.txt'), 'saved\n')
    const uri = (name: string) => pathToFileURL(path.join(workspace, name)).href
    const blocks: ContentBlock[] = [
      text('See '),
      { type: 'resource_link', name: 'x', uri: uri('x.png') },
      resource(uri('a.txt'), 'newer\n'),
      resource(uri('new.txt'), 'only in the editor\n'),
      resource('https://example.com/page', 'a page'),
    ]
    const task = await readPrompt(blocks, { workspace })
    expect(task.images).toEqual(['x.png'])
    expect(Object.entries(task.context).map(([title, content]) => [title.slice(0, 24), content])).toEqual([
      ['Unsaved content of a.txt', 'newer\n'],
      ['Content of new.txt', 'only in the editor\n'],
      ['Content of https://examp', 'a page'],
    ])
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
    const task = await readPrompt([text('See '), ...links], { workspace, readFile })
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
    ['save it there', [text('x'), { type: 'image', data: 'AAAA', mimeType: 'image/png' }]],
    ['type audio', [text('x'), { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' }]],
    [
      'at most 8 images',
      Array.from({ length: 9 }, (_, at) => ({
        ...{ type: 'resource_link' as const, name: 'x', uri: `file:///ws/${at}.png` },
      })),
    ],
  ])('is refused where it is no task: %s [H.03]', async (words, blocks) => {
    const refused = await readPrompt(blocks, { workspace: '/ws' }).catch((error: Error) => error)
    expect(refused).toMatchObject({ code: -32602, message: expect.stringContaining(words) })
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
