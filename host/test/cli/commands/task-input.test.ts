import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { limits } from '#specs/protocol/limits.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { checkOutputFile, giveAnswer } from '../../../cli/commands/answer-output.ts'
import { readTaskInput } from '../../../cli/commands/task-input.ts'

function streams(input?: string | Buffer, isTTY = false) {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  if (input !== undefined) stdin.end(input)
  return { stdin: Object.assign(stdin, { isTTY }), stdout, stderr, env: {}, version: '0' }
}
const wanted = { task: undefined, isJson: false, isOptional: false } as const

describe('the task of a run', () => {
  it('is read from standard input by "-" and without an argument [H.01]', async () => {
    expect(await readTaskInput(streams('Count the words\n'), { ...wanted, task: '-' })).toEqual({
      task: 'Count the words\n',
    })
    expect(await readTaskInput(streams('Count the words'), wanted)).toEqual({ task: 'Count the words' })
  })

  it('has text that is piped in beside it as a fact [H.01]', async () => {
    expect(await readTaskInput(streams('a log'), { ...wanted, task: 'Explain' })).toEqual({
      task: 'Explain',
      context: { 'standard input': 'a log' },
    })
    expect(await readTaskInput(streams(''), { ...wanted, task: 'Explain' })).toEqual({ task: 'Explain' })
  })

  it('does not wait for a pipe that nobody writes to, and reads neither a terminal nor decisions [H.01]', async () => {
    const io = streams()
    const given = { ...wanted, task: 'Explain' }
    expect(await readTaskInput(io, { ...given, silenceMs: 10 })).toEqual({ task: 'Explain' })
    expect(String(io.stderr.read())).toContain('nothing came from standard input')
    expect(await readTaskInput(streams('keys', true), given)).toEqual({ task: 'Explain' })
    expect(await readTaskInput(streams('{}'), { ...given, isJson: true })).toEqual({ task: 'Explain' })
    expect(await readTaskInput(streams('x'), { ...wanted, isOptional: true })).toEqual({})
  })

  it.each([
    ['what is not UTF-8', Buffer.from([0xff, 0xfe]), {}, 'not UTF-8'],
    ['what is too long', 'x'.repeat(limits.documentMaxChars + 1), {}, 'is longer than'],
    ['what is far too long', Buffer.alloc(4 * limits.documentMaxChars), {}, 'is longer than'],
    ['nothing', ' \n', {}, 'is empty'],
    ['decisions', 'x', { isJson: true }, '--json'],
  ])('is refused when standard input has %s [H.01]', async (_, input, more, message) => {
    await expect(readTaskInput(streams(input), { ...wanted, task: '-', ...more })).rejects.toThrow(message)
  })
})

describe('the final answer', () => {
  const end = {
    outcome: 'completed',
    reason: 'completed',
    message: '',
    summary: '6 words \u001b[31m',
  } as const

  it('replaces a file as a whole and is printed as it is to a program, not to a terminal [H.01]', async () => {
    const folder = await temporaryFolder('answer')
    const output = await checkOutputFile(path.join(folder, 'answer.txt'))
    await writeFile(output, 'old')
    const io = streams('')
    await giveAnswer(io, end, { output, quiet: true })
    expect(await readFile(output, 'utf8')).toBe(`${end.summary}\n`)
    expect(await readdir(folder)).toEqual(['answer.txt'])
    io.stdout.end()
    expect(await text(io.stdout)).toBe(`${end.summary}\n`)
    const screen = { ...streams(''), stdout: Object.assign(new PassThrough(), { isTTY: true }) }
    await giveAnswer(screen, end, { quiet: true })
    expect(String(screen.stdout.read())).not.toContain('\u001b')
  })

  it('is not there when the run did not complete [H.01]', async () => {
    const output = path.join(await temporaryFolder('answer'), 'answer.txt')
    const io = streams('')
    await giveAnswer(io, { ...end, outcome: 'failed', reason: 'internal' }, { output, quiet: true })
    await expect(readFile(output)).rejects.toThrow('ENOENT')
    expect(io.stdout.read()).toBeNull()
    const said = String(io.stderr.read())
    expect(said).toContain('\\e')
    expect(said).not.toContain('\u001b')
  })

  it('is refused a place that is no file in a folder [H.01]', async () => {
    const folder = await temporaryFolder('answer')
    await mkdir(path.join(folder, 'sub'))
    await symlink('/dev/null', path.join(folder, 'link'))
    for (const [file, why] of [
      ['sub', 'not a regular file'],
      ['link', 'not a regular file'],
      ['none/answer.txt', 'cannot be written'],
    ] as const)
      await expect(checkOutputFile(path.join(folder, file))).rejects.toThrow(why)
  })
})
