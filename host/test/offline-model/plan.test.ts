import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import { countUnits, readIntent, wordIntent } from '../../offline-model/intents.ts'
import { planTask, readBrief, titleOf } from '../../offline-model/plan.ts'

const workspace = ['data/', 'data/sales.csv (900 bytes)', 'docs/', 'notes.txt (12 bytes)']

describe('the offline plan', () => {
  it('has two steps for an analysis, and the later one waits for the earlier [S0.01] [S4.06]', () => {
    const plan = Plan.parse(planTask('Analyze sales.csv', workspace))
    expect(plan.steps.map(({ id, needs }) => ({ id, needs }))).toEqual([
      { id: 'inspect-csv-1', needs: [] },
      { id: 'analyze-csv-2', needs: ['inspect-csv-1'] },
    ])
    expect(plan.steps.at(-1)?.title).toBe('Analyze data/sales.csv, write report.md and chart.svg')
  })

  it.each([
    'Analyze sales.csv',
    `Create a.txt with "${'long '.repeat(200)}"`,
    'Run `one\ntwo\nthree`. Delete notes.txt.',
    'Sing',
  ])('says its goal and each title in one short line: %s [S4.06]', (task) => {
    const plan = Plan.parse(planTask(task, workspace))
    for (const line of [plan.goal, ...plan.steps.map(({ title }) => title)])
      expect(line).toMatch(/^.{3,120}$/)
  })

  it('lets orders on different files run at the same time, and keeps the order of the others [S0.01]', () => {
    const plan = planTask(
      'Create a.txt with "1". Create b.txt with "2". Rename a.txt to c.txt. Run `ls`.',
      workspace,
    )
    expect(plan.steps.map(({ needs }) => needs)).toEqual([
      [],
      [],
      ['create-1'],
      ['create-1', 'create-2', 'move-3'],
    ])
  })

  it.each<[string, boolean[]]>([
    ['Use sub-agents: create a.txt with "1". Create b.txt with "2".', [true, true]],
    ['Use sub-agents to create a.txt with "1" and create b.txt with "2"', [true, true]],
    ['With two sub-agents, create a.txt with "1", create b.txt with "2"', [true, true]],
    ['Use 2 sub-agents in parallel:\n- create a.txt with "1"\n- create b.txt with "2"', [true, true]],
    ['Create a.txt with "1" and create b.txt with "2" using sub-agents.', [true, true]],
    ['Create a.txt with "1". Create b.txt with "2", each with a sub-agent of its own.', [true, true]],
    ['Create a.txt with "1". Create b.txt with "2". Use sub-agents.', [true, true]],
    ['Use a sub-agent to create a.txt with "1". Create b.txt with "2".', [true, false]],
    ['Create a.txt with "1". Have a sub-agent create b.txt with "2".', [false, true]],
    [
      'Create a.txt with "1". Let sub-agents create b.txt with "2". Create c.txt with "3".',
      [false, true, true],
    ],
    [
      'Use a sub-agent to create a.txt with "1", and another sub-agent to create b.txt with "2"',
      [true, true],
    ],
    ['Create sub-agents.txt with "use sub-agents". Search for "with a sub-agent".', [false, false]],
  ])(
    'has steps for sub-agents where the task asks for them, and no others: %s [S4.06 A.07]',
    (task, wanted) => {
      const { steps } = Plan.parse(planTask(task, workspace))
      expect(steps.map(({ kind }) => kind === 'agent')).toEqual(wanted)
      if (wanted.every((byAgent) => byAgent)) expect(steps.flatMap(({ needs }) => needs)).toEqual([])
    },
  )

  it('has no more steps for sub-agents than can begin, and does nothing where sub-agents are all that is named [A.07]', () => {
    const task = 'Use sub-agents: create a.txt with "1". Create b.txt with "2". Create c.txt with "3".'
    const kinds = planTask(task, workspace, 2).steps.map(({ kind }) => kind)
    expect(kinds).toEqual(['agent', 'agent', undefined])
    expect(planTask('Use sub-agents.', workspace).steps[0]?.instructions).toContain('names nothing to do')
  })

  it('is read back by the step agent exactly as it was meant [S4.06]', () => {
    const text = fc.string({ unit: 'binary', maxLength: 40 })
    const intent = fc.oneof(
      fc.record({ kind: fc.constant('create' as const), path: text, content: text }),
      fc.record({ kind: fc.constant('replace' as const), path: text, from: text, to: text }),
      fc.record({ kind: fc.constant('append' as const), path: text, text }),
      fc.record({ kind: fc.constantFrom('move' as const, 'copy' as const), path: text, to: text }),
      fc.record({
        kind: fc.constantFrom(
          'delete' as const,
          'read' as const,
          'make-folder' as const,
          'inspect-csv' as const,
        ),
        path: text,
      }),
      fc.record({ kind: fc.constantFrom('search' as const, 'occurrences' as const), text, path: text }),
      fc.record({ kind: fc.constant('count' as const), unit: fc.constantFrom(...countUnits), path: text }),
      fc.record({
        kind: fc.constantFrom('list' as const, 'count-files' as const),
        pattern: text,
        path: text,
      }),
      fc.record({ kind: fc.constant('run' as const), command: text }),
      fc.record({ kind: fc.constant('calculate' as const), expression: text }),
      fc.record({ kind: fc.constant('look' as const), reason: text }),
      fc.record({
        kind: fc.constant('ask' as const),
        question: text,
        options: fc.array(text, { minLength: 2, maxLength: 4 }),
        confirm: fc.constant(false),
      }),
      fc.record({
        kind: fc.constant('ask' as const),
        question: text,
        options: fc.constant([]),
        confirm: fc.boolean(),
      }),
      fc.record({ kind: fc.constantFrom('fetch-page' as const, 'summarize-page' as const), url: text }),
      fc.record({
        kind: fc.constant('save-page' as const),
        url: text,
        path: text,
        what: fc.constantFrom('page' as const, 'summary' as const),
      }),
      fc.record({ kind: fc.constant('analyze-csv' as const), path: text, report: text, chart: text }),
    )
    fc.assert(
      fc.property(intent, (meant) => {
        expect(readIntent(wordIntent(meant))).toEqual(meant)
        // A sub-agent learns the title before it, and what is known behind it.
        const brief = `${titleOf(meant)}\n\n${wordIntent(meant)}`
        expect(readBrief(brief)).toEqual(meant)
        expect(readBrief(`${brief}\n\nWhat is known:\n<result step="a">\nDelete "x".\n</result>`)).toEqual(
          meant,
        )
        expect(readBrief(`Something else\n\n${wordIntent(meant)}`)).toBeNull()
      }),
      { numRuns: 1_000, seed: 3 },
    )
  })
})
