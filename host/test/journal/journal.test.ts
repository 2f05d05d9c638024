import { appendFile, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Journal, readJournal } from '../../journal/journal.ts'
import { readOutline } from '../../journal/journal-summary.ts'

const runId = 'run-00000000000000000001'
const note = (text: string) =>
  ({ source: 'agent', agentPath: 'root', n: 1, event: { type: 'note', level: 'info', text } }) as const
let file: string

beforeEach(async () => {
  file = path.join(await temporaryFolder('journal'), 'journal.jsonl')
})

async function write(texts: string[]): Promise<string> {
  await using journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
  await Promise.all(texts.map((text) => journal.append(note(text))))
  return journal.head
}

describe('the journal', () => {
  it('reads back what was appended, in order, with numbers and a chain [S0.12]', async () => {
    const head = await write(['one', 'two \u2028 \n three', 'four'])
    const events = await readJournal(file, runId)
    expect(events.map(({ seq }) => seq)).toEqual([1, 2, 3])
    expect(events.map(({ event }) => event.type === 'note' && event.text)).toEqual([
      'one',
      'two \u2028 \n three',
      'four',
    ])
    expect(events[1]?.prev).toBe(events[0]?.hash)
    expect(events.at(-1)?.hash).toBe(head)
  })

  it('reads back an event whatever the order of its keys [S0.12]', async () => {
    {
      await using journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
      await journal.append({ source: 'host', event: { reason: 'r', target: 't', type: 'egress-denied' } })
    }
    expect(await readJournal(file, runId)).toMatchObject([{ event: { type: 'egress-denied', target: 't' } }])
  })

  it('continues from the last line when it is opened again', async () => {
    await write(['one'])
    await write(['two'])
    expect((await readJournal(file, runId)).map(({ seq }) => seq)).toEqual([1, 2])
  })

  it('takes nothing more while it closes, so that it can be read afterwards [S0.12]', async () => {
    const journal = await Journal.open({ runId, path: file, locks: path.dirname(file) })
    await journal.append(note('one'))
    let isOver = false
    const closing = journal.close().finally(() => {
      isOver = true
    })
    const late: Promise<boolean>[] = []
    while (!isOver) {
      late.push(
        journal.append(note('late')).then(
          () => true,
          () => false,
        ),
      )
      await new Promise((resolve) => setImmediate(resolve))
    }
    await closing
    expect(new Set(await Promise.all(late))).toEqual(new Set([false]))
    expect(await readJournal(file, runId)).toHaveLength(1)
    await expect(readOutline(file, runId)).resolves.toBeDefined()
  })

  it('drops a last line that a crash cut short, and appends after it', async () => {
    // Never closed: what a killed process leaves.
    const killed = await Journal.open({ runId, path: file, locks: path.dirname(file) })
    for (const text of ['one', 'two']) await killed.append(note(text))
    await killed.lock[Symbol.asyncDispose]()
    await appendFile(file, '{"seq":3,"at":17')
    expect(await readJournal(file, runId)).toHaveLength(2)
    await write(['three'])
    expect((await readJournal(file, runId)).map(({ seq }) => seq)).toEqual([1, 2, 3])
  })

  it('names the line where any one byte was changed [S0.12 R.03]', async () => {
    await write(['alpha', 'beta', 'gamma'])
    const whole = await readFile(file)
    for (let at = 0; at < whole.length; at += 7) {
      const damaged = Buffer.from(whole)
      damaged[at] = damaged[at] === 0x31 ? 0x32 : 0x31
      await writeFile(file, damaged)
      const line =
        whole
          .subarray(0, at + 1)
          .toString()
          .split('\n').length - (whole[at] === 0x0a ? 1 : 0)
      await expect(readJournal(file, runId)).rejects.toThrow(new RegExp(`line ${line}|line ${line + 1}`))
    }
  })

  it('refuses lines that are missing, doubled or of another run', async () => {
    await write(['one', 'two', 'three'])
    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n')
    for (const changed of [[lines[0], lines[2]], [lines[0], lines[0], lines[1]], [lines[1]]]) {
      await writeFile(file, `${changed.join('\n')}\n`)
      await expect(readJournal(file, runId)).rejects.toMatchObject({ code: 'state_corrupted' })
    }
    await writeFile(file, `${lines.join('\n')}\n`)
    await expect(readJournal(file, 'run-00000000000000000002')).rejects.toThrow(/the run is/)
  })
})
