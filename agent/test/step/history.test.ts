// The conversation is valid whatever is done to it, in whatever order.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { History, interruptedOutput } from '../../step/history.ts'
import { expectValidConversation } from '../support/conversation.ts'

const opening: readonly ChatMessage[] = [
  { role: 'system', content: 'rules' },
  { role: 'user', content: 'task' },
]
const callOf = (id: string) => ({ id, name: 'read_note', argumentsText: '{}' })
const turn = (text: string, ...ids: string[]) => ({ text, reasoning: '', toolCalls: ids.map(callOf) })

type Operation = (history: History) => void

const texts = fc.constantFrom('', ' ', '\n', 'words', '\u0000', '\ud800')
const ids = fc.constantFrom('a', 'b', 'c', 'd')
const operations: fc.Arbitrary<Operation> = fc.oneof(
  fc.tuple(texts, fc.array(ids, { maxLength: 4 })).map<Operation>(
    ([text, calls]) =>
      (history) =>
        history.addTurn(turn(text, ...calls)),
  ),
  fc.tuple(ids, texts).map<Operation>(
    ([id, text]) =>
      (history) =>
        void history.setResult(id, text),
  ),
  texts.map<Operation>((text) => (history) => history.addUser(text)),
  texts.map<Operation>((text) => (history) => history.addNote(text)),
  fc.constant<Operation>((history) => void history.replace(opening)),
)

describe('a conversation', () => {
  it('is valid after any sequence of operations [A.04]', () => {
    fc.assert(
      fc.property(fc.array(operations, { maxLength: 40 }), (list) => {
        const history = new History(opening)
        for (const operation of list) {
          operation(history)
          expectValidConversation(history.messages)
        }
      }),
      { seed: 11, numRuns: 400 },
    )
  })

  it('has a result for every call from the moment it is asked, in the order asked [A.04]', () => {
    const history = new History(opening)
    history.addTurn(turn('', 'a', 'b', 'c'))
    expect(history.setResult('c', 'third')).toBe(true)
    expect(history.setResult('a', 'first')).toBe(true)
    expect(history.messages.slice(3).map(({ content }) => content)).toEqual([
      'first',
      interruptedOutput,
      'third',
    ])
    expect(history.openCalls).toEqual(['b'])
  })

  it('takes a result once, and none that nobody asked for [A.04]', () => {
    const history = new History(opening)
    history.addTurn(turn('', 'a'))
    expect(history.setResult('a', 'one')).toBe(true)
    expect(history.setResult('a', 'two')).toBe(false)
    expect(history.setResult('z', 'three')).toBe(false)
    expect(history.messages.at(-1)?.content).toBe('one')
  })

  it('only grows: what was there before an answer stays as it was [A.05]', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(texts, fc.uniqueArray(ids, { maxLength: 3 }), texts), { maxLength: 10 }),
        (turns) => {
          const history = new History(opening)
          let before = JSON.stringify(history.messages)
          for (const [text, calls, word] of turns) {
            history.addTurn(turn(text, ...calls))
            for (const id of calls) history.setResult(id, word)
            // As a step does: nothing is asked while the model spoke last.
            history.addNote(`note ${word}`)
            const now = JSON.stringify(history.messages)
            // Without the marks that close the last message and the list.
            expect(now.startsWith(before.slice(0, -3))).toBe(true)
            before = now
          }
        },
      ),
      { seed: 12, numRuns: 200 },
    )
  })

  it('adds words to a message that was not answered, and makes one of its own after an answer [A.04]', () => {
    const history = new History(opening)
    history.addUser('more')
    expect(history.messages).toHaveLength(2)
    expect(history.messages.at(-1)?.content).toBe('task\n\nmore')
    history.addTurn(turn('answer'))
    history.addNote('a word')
    expect(history.messages.at(-1)).toEqual({ role: 'user', content: 'a word' })
    history.addTurn(turn('', 'a'))
    history.setResult('a', 'said')
    history.addNote('a word')
    expect(history.messages.at(-1)).toMatchObject({ role: 'tool', content: 'said\n\na word' })
    history.addUser('a person')
    expect(history.messages.at(-1)).toEqual({ role: 'user', content: 'a person' })
  })

  it('is not replaced while calls are open [A.04]', () => {
    const history = new History(opening)
    history.addTurn(turn('', 'a'))
    expect(history.replace(opening)).toBe(false)
    history.setResult('a', 'x')
    expect(history.replace(opening)).toBe(true)
    expect(history.messages).toEqual(opening)
  })
})
