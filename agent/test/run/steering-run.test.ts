// Messages, pauses and cancels over whole runs: planning, steps side by side and one after the other.
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import { someRunId } from '../support/run.ts'
import { isPlanning, planReply, stepOf } from '../support/scripted-model.ts'
import { runWhole } from '../support/whole-run.ts'

const message = (messageId: string, text: string) => ({ messageId, text })
const call = (name: string, args: unknown) => reply({ calls: [{ name, arguments: args }] })

describe('what a person does in a whole run', () => {
  const plan = {
    goal: 'g',
    steps: [
      { id: 'one', title: 'One', instructions: 'do one', writes: ['a'] },
      { id: 'two', title: 'Two', instructions: 'do two', writes: ['b'] },
      { id: 'three', title: 'Three', instructions: 'do three', needs: ['one', 'two'] },
    ],
  }
  const seenIn = (asked: readonly Asked[], text: string) => [
    ...new Set(asked.filter((one) => JSON.stringify(one.messages).includes(text)).map(stepOf)),
  ]

  it('a message reaches each step that runs once, and the later ones from their beginning [A.08]', async () => {
    let waiting = 0
    const { asked, events } = await runWhole(async (tasks, one, index) => {
      if (isPlanning(one)) return planReply(plan)
      // Both steps run when it comes, and neither has ended.
      if (one.messages.length === 2 && stepOf(one) !== 'three') {
        if (++waiting === 2) tasks.steer(someRunId, message('m1', 'in German'))
        while (waiting < 2) await new Promise((resolve) => setTimeout(resolve, 2))
        return call('read_note', { path: `${index}` })
      }
      return reply({ text: 'done' })
    })
    expect(seenIn(asked, 'in German').toSorted()).toEqual(['one', 'three', 'two'])
    for (const one of asked)
      expect(JSON.stringify(one.messages).split('in German').length).toBeLessThanOrEqual(2)
    const seen = events.flatMap((event) => (event.type === 'steer-seen' ? [event.stepId] : []))
    expect(seen.toSorted()).toEqual(['one', 'two'])
  })

  it('a message that came before anything else is known to the planner and to all steps [A.08]', async () => {
    const { asked, events } = await runWhole(
      (_tasks, one) => (isPlanning(one) ? planReply(plan) : reply({ text: 'done' })),
      { during: (tasks, runId) => void tasks.steer(runId, message('m1', 'in German')) },
    )
    expect(seenIn(asked, 'in German')).toEqual([undefined, 'one', 'two', 'three'])
    expect(events.filter(({ type }) => type === 'steer-seen')).toEqual([
      { type: 'steer-seen', stepId: 'plan', messageIds: ['m1'] },
    ])
  })

  it('a message or a cancel for a sub-agent that is not at work is refused, and for another run [A.07 A.08]', async () => {
    const answers: unknown[] = []
    const { events } = await runWhole(
      (_tasks, one) =>
        isPlanning(one) ? planReply({ goal: 'g', steps: [plan.steps[0]] }) : reply({ text: 'done' }),
      {
        during: (tasks, runId) => {
          answers.push(
            tasks.steer(runId, { ...message('m1', 'x'), agentPath: 'root/gone' }),
            tasks.cancelAgent(runId, 'root/gone', ''),
            tasks.cancelAgent(runId, 'root', ''),
            tasks.cancelAgent(`run-${'0'.repeat(20)}`, 'root/gone', ''),
          )
        },
      },
    )
    expect(answers).toEqual(
      Array.from({ length: 4 }, () => expect.objectContaining({ ok: false, error: expect.anything() })),
    )
    expect(answers[0]).toMatchObject({
      error: { code: 'notFound', message: 'no sub-agent root/gone is at work; none is' },
    })
    expect(events.filter(({ type }) => type === 'steer-seen')).toEqual([])
  })

  it('a message that came after the last word is reported as unseen [A.08]', async () => {
    const { events, completion } = await runWhole(
      (tasks, one) => {
        if (isPlanning(one)) return planReply({ goal: 'g', steps: [plan.steps[0]] })
        tasks.steer(someRunId, message('m1', 'too late'))
        return reply({ text: 'done' })
      },
      { task: { limits: { maxTurnsPerStep: 1 } } },
    )
    expect(completion.outcome).toBe('completed')
    expect(events.at(-1)).toEqual({
      type: 'note',
      level: 'warn',
      text: 'the run ended before the agent saw this message: too late',
    })
  })

  it('a pause holds planning, steps and turns alike, and is reported once [A.08]', async () => {
    const doings: string[] = []
    const { asked, events, completion } = await runWhole(
      (tasks, one) => {
        doings.push(stepOf(one) ?? 'plan')
        if (isPlanning(one)) return planReply({ goal: 'g', steps: plan.steps.slice(0, 2) })
        if (stepOf(one) === 'one' && one.messages.length === 2) {
          tasks.pause(someRunId, true)
          setTimeout(() => {
            doings.push('resumed')
            tasks.pause(someRunId, false)
          }, 80)
          return call('read_note', { path: 'a' })
        }
        return reply({ text: 'done' })
      },
      {
        task: { limits: { maxParallelSteps: 1 } },
        during: (tasks, runId) => {
          tasks.pause(runId, true)
          setTimeout(() => {
            doings.push('resumed')
            tasks.pause(runId, false)
          }, 80)
        },
      },
    )
    expect(completion.outcome).toBe('completed')
    expect(asked).toHaveLength(4)
    expect(doings).toEqual(['resumed', 'plan', 'one', 'resumed', 'one', 'two'])
    const pauses = events.map(({ type }) => type).filter((type) => type.startsWith('pause'))
    expect(pauses).toEqual(['pause-start', 'pause-end', 'pause-start', 'pause-end'])
  })

  it('a cancel in a pause ends it at once, and what it held is reported as ended [A.08]', async () => {
    const { asked, events, completion } = await runWhole(() => reply({ text: 'never' }), {
      during: (tasks, runId) => {
        tasks.pause(runId, true)
        setTimeout(() => tasks.cancel(runId, 'enough'), 40)
      },
    })
    expect(completion.outcome).toBe('cancelled')
    expect(asked).toHaveLength(0)
    expect(events.map(({ type }) => type)).toEqual(['pause-start', 'pause-end'])
  })
})
