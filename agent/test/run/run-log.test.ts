import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { openRunLog, type RunLog } from '../../run/run-log.ts'

/** A log whose checkpoints are counted; each takes until `finish` is called. */
async function openLog(): Promise<{ log: RunLog; made: () => number; finish: () => void }> {
  let count = 0
  let finish: () => void = () => undefined
  const log = openRunLog({
    file: path.join(await temporaryFolder('log'), 'run.jsonl'),
    resume: false,
    minIntervalMs: Number.POSITIVE_INFINITY,
    makeCheckpoint: () => {
      count += 1
      return new Promise((resolve) => {
        finish = () => resolve(true)
      })
    },
  })
  return { log, made: () => count, finish: () => finish() }
}

const turn = () => Promise.withResolvers<void>()
const settle = () => new Promise((resolve) => setImmediate(resolve))

describe('moments of a run', () => {
  it('a step begins behind a checkpoint of all that was logged before it, and not behind a second one [W.04]', async () => {
    const { log, made, finish } = await openLog()
    await log.once('listing', async () => 'a.txt')
    log.mark()
    log.mark()
    const sent: string[] = []
    const started = log.emit('root', { type: 'step-start', stepId: 's' }, async () => void sent.push('s'))
    await settle()
    expect([made(), sent]).toEqual([1, []])
    finish()
    await started
    expect(sent).toEqual(['s'])
  })

  it('no checkpoint is made while an effect is under way, nor where nothing has happened [W.04]', async () => {
    const { log, made, finish } = await openLog()
    log.mark()
    await settle()
    finish()
    const before = made()
    log.mark()
    await settle()
    expect(made()).toBe(before)
    const work = turn()
    const effect = log.effect('inside', async () => {
      await log.once('call', async () => 1)
      await work.promise
    })
    await settle()
    log.mark()
    await settle()
    expect(made()).toBe(before)
    work.resolve()
    await effect
  })

  it('a person is asked behind a checkpoint, also by a call that has not changed anything yet [W.04]', async () => {
    const { log, made, finish } = await openLog()
    const asked: string[] = []
    const ask = async (name: string): Promise<void> => void asked.push(name)
    await log.once('model s', async () => 'an answer')
    const question = log.ask(false, () => ask('question'))
    await settle()
    expect([made(), asked]).toEqual([1, []])
    finish()
    await question
    const call = log.effect('inside', async () => {
      await log.once('hook', async () => 1)
      await log.ask(true, () => ask('approval'))
    })
    await settle()
    expect([made(), asked]).toEqual([2, ['question']])
    finish()
    await call
    expect(asked).toEqual(['question', 'approval'])
  })

  it('a call asks at once while another effect is under way [W.04]', async () => {
    const { log, made } = await openLog()
    const work = turn()
    const other = log.effect('inside', () => work.promise)
    await settle()
    await log.effect('inside', async () => {
      await log.once('hook', async () => 1)
      await log.ask(true, async () => undefined)
    })
    expect(made()).toBe(0)
    work.resolve()
    await other
  })
})

describe('a checkpoint that the host asks for', () => {
  it('is of that moment, also where nothing was logged since the last; effects and events wait for it [V.05 W.04]', async () => {
    const { log, made, finish } = await openLog()
    const done: string[] = []
    const first = log.makeNow()
    await settle()
    const second = log.makeNow()
    const effect = log.effect('inside', async () => void done.push('effect'))
    const event = log.emit('root', { type: 'step-start', stepId: 's' }, async () => void done.push('event'))
    finish()
    expect(await first).toBe('made')
    await settle()
    // The second was asked for before they began, so they are not in it.
    expect([made(), done]).toEqual([2, []])
    finish()
    expect(await second).toBe('made')
    await Promise.all([effect, event])
    expect(done.toSorted()).toEqual(['effect', 'event'])
  })

  it('is not made while a call changes something, but while one waits for a person before it does [V.05 W.04]', async () => {
    const { log, made, finish } = await openLog()
    const [answer, work] = [turn(), turn()]
    const done: string[] = []
    const call = log.effect('inside', async () => {
      await log.ask(true, () => answer.promise)
      done.push('answered')
      await work.promise
    })
    await settle()
    finish()
    await settle()
    const before = made()
    const asked = log.makeNow()
    answer.resolve()
    await settle()
    // The call continues behind the checkpoint.
    expect([made(), done]).toEqual([before + 1, []])
    finish()
    expect(await asked).toBe('made')
    await settle()
    expect(done).toEqual(['answered'])
    expect(await log.makeNow()).toBe('busy')
    expect(made()).toBe(before + 1)
    work.resolve()
    await call
  })

  it('is not made by a run that makes none [V.05]', async () => {
    const log = openRunLog({
      file: path.join(await temporaryFolder('log'), 'run.jsonl'),
      resume: false,
      makeCheckpoint: async () => false,
    })
    expect([await log.makeNow(), await log.makeNow()]).toEqual(['off', 'off'])
  })
})
