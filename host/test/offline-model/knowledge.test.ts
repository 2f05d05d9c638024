// What the offline model takes for an order to remember, to recall, and to load a skill.
import { describe, expect, it } from 'vitest'
import { readIntent, type UserIntent, wordIntent } from '../../offline-model/intents.ts'
import { understandTask } from '../../offline-model/understand.ts'

function read(task: string): readonly UserIntent[] | string {
  const understood = understandTask(task, ['a.txt (1 byte)'])
  return understood.ok ? understood.intents : understood.reason
}

describe('what a person asks of memory and skills', () => {
  it.each<[string, UserIntent]>([
    ['Remember that the tests need Docker', { kind: 'remember', note: 'the tests need Docker' }],
    ['Please remember: build with `make all`.', { kind: 'remember', note: 'build with `make all`' }],
    [
      'Remember "Use tabs, and read a.txt first."',
      { kind: 'remember', note: 'Use tabs, and read a.txt first.' },
    ],
    ['What do you remember?', { kind: 'recall', query: '' }],
    ['What do you remember about the tests?', { kind: 'recall', query: 'tests' }],
    ['Recall everything', { kind: 'recall', query: '' }],
    ['recall "Docker compose"', { kind: 'recall', query: 'Docker compose' }],
    ['Use the skill deploy', { kind: 'use-skill', skill: 'deploy' }],
    ['load skill "deploy"', { kind: 'use-skill', skill: 'deploy' }],
  ])('is understood: %s [S4.06]', (task, intent) => {
    expect(read(task)).toEqual([intent])
    expect(readIntent(wordIntent(intent))).toEqual(intent)
  })

  it('is one order among others [S4.06]', () => {
    expect(read('Read a.txt. Remember that it is short.')).toEqual([
      { kind: 'read', path: 'a.txt' },
      { kind: 'remember', note: 'it is short' },
    ])
  })
})
