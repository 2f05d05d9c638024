import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import {
  agentEnd,
  agentStart,
  modelEnd,
  modelStart,
  runEnd,
  runStart,
  type Step,
  spansOf,
  toolEnd,
  toolStart,
  turnEnd,
} from './support.ts'

const text = readFileSync(path.join(import.meta.dirname, '../../../docs/traces.md'), 'utf8')

/** Names in backticks of the first column of the table below a heading. */
function listedBelow(heading: string): string[] {
  const section = text.slice(text.indexOf(heading)).split('\n## ')[0] ?? ''
  const cells = [...section.matchAll(/^\| (.*?) \|/gm)].map(([, cell = '']) => cell)
  return cells.flatMap((cell) => [...cell.matchAll(/`([\w.]+)`/g)].map(([, name = '']) => name)).sort()
}

/** Names of all attributes of a run with everything in it. */
function namesOf(filter?: (given: string) => string): string[] {
  const many = Array.from({ length: 1_100 }, (_, at): Step => [50, toolStart(`many-${at}`, 'math'), 'root'])
  const cancelled = runEnd({ outcome: 'cancelled', reason: 'cancelled' })
  const retry = {
    type: 'model-retry',
    requestId: 'model-1',
    attempt: 2,
    status: 429,
    cause: 'busy',
    delayMs: 0,
  }
  const facts = { costUsd: 0.1, queuedMs: 60, estimated: true, responseModel: 'm', providerRequestId: 'r' }
  const steps: Step[] = [
    [0, runStart({ metadata: { KEY: 'v' }, continues: 'run-aaaaaaaaaaaaaaaaaaaa' })],
    [1, agentStart(), 'root/a'],
    [2, modelStart('model-1', 1)],
    [3, retry],
    [4, modelEnd('model-1', facts)],
    [5, turnEnd(1, { text: 'words' }), 'root'],
    [6, toolStart('c1', 'run_bash'), 'root'],
    [7, toolEnd('c1', 'run_bash', { exitCode: 1, signal: 'SIGKILL' }), 'root'],
    [8, agentEnd(), 'root/a'],
    ...many,
    [99, cancelled],
  ]
  const spans = spansOf(steps, filter === undefined ? {} : { filter })
  return [...new Set(spans.flatMap(({ attributes }) => Object.keys(attributes)))].sort()
}

it('docs/traces.md lists every attribute of a span and no other [R.04 S1.15]', () => {
  const plain = namesOf()
  expect(listedBelow('## Attributes')).toEqual(plain)
  const content = namesOf(String).filter((name) => !plain.includes(name))
  expect(listedBelow('## Content')).toEqual(content)
})
