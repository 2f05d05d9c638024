// Views of a run's sub-agents over a source that learns when to answer: made together, ended behind everybody's back.
import { describe, expect, it } from 'vitest'
import { Mutex } from '#specs/node/semaphore.ts'
import type { HelperErrorCode, HelperResult } from '../../link/root-helper.ts'
import { type AgentView, type ViewSource, Views } from '../../subagents/views.ts'
import { silentLogger } from '../support/run.ts'

/** A source with room for so many; what it was asked for, in order, and each closing when it may end. */
function source(room: number) {
  const open = new Set<string>()
  const asked: string[] = []
  const closings: (() => void)[] = []
  const refuse = (code: HelperErrorCode): HelperResult<never> => ({
    ok: false,
    error: { code, message: `no room for more than ${room}` },
  })
  const views: ViewSource = {
    openViews: async (ids) => {
      asked.push(`open ${ids.length}`)
      if (open.size + ids.length > room) return refuse('busy')
      for (const id of ids) open.add(id)
      return {
        ok: true,
        value: ids.map((id) => ({ path: `/v/${id}`, start: `/s/${id}`, upper: `/u/${id}` })),
      }
    },
    closeViews: async (ids) => {
      asked.push(`close ${ids.length}`)
      await new Promise<void>((resolve) => closings.push(resolve))
      for (const id of ids) open.delete(id)
      return { ok: true, value: undefined }
    },
  }
  return { views, open, asked, closings }
}

/** What there is of it, as a view or as the code of a failure. */
const pathOf = (opened: HelperResult<AgentView>): string =>
  opened.ok ? opened.value.path.slice(0, 3) : opened.error.code
function viewOf(opened: HelperResult<AgentView> | undefined): AgentView {
  if (opened?.ok !== true) throw new Error('no view')
  return opened.value
}

describe('views', () => {
  it('that are asked for together are made by one request, each with its own paths [A.07]', async () => {
    const { views: from, asked } = source(32)
    const views = new Views({ source: from, turns: new Mutex(), logger: silentLogger })
    const opened = (await Promise.all(Array.from({ length: 8 }, () => views.open()))).map(viewOf)
    expect(asked).toEqual(['open 8'])
    expect(opened.map(({ path, id }) => path === `/v/${id}`)).toEqual(Array(8).fill(true))
    expect(new Set(opened.map(({ id }) => id)).size).toBe(8)
  })

  it('wait for work that is half done, and come together after it [A.07]', async () => {
    const { views: from, asked } = source(32)
    const turns = new Mutex()
    const merge = Promise.withResolvers<void>()
    const merging = turns.run(() => merge.promise)
    const views = new Views({ source: from, turns, logger: silentLogger })
    const first = views.open()
    await new Promise((resolve) => setTimeout(resolve, 1))
    const second = views.open()
    expect(asked).toEqual([])
    merge.resolve()
    await Promise.all([merging, first, second])
    expect(asked).toEqual(['open 2'])
  })

  it('are ended while nobody waits, those that come meanwhile by one request, and all before the end [A.07]', async () => {
    const { views: from, asked, closings, open } = source(32)
    const views = new Views({ source: from, turns: new Mutex(), logger: silentLogger })
    const opened = (await Promise.all(Array.from({ length: 5 }, () => views.open()))).map(viewOf)
    for (const view of opened.slice(0, 3)) views.close(view)
    for (const view of opened.slice(0, 3)) views.close(view)
    expect(asked.slice(1)).toEqual(['close 1'])
    let isOver = false
    const ending = views.closeAll().then(() => {
      isOver = true
    })
    closings[0]?.()
    await expect.poll(() => asked.length).toBe(3)
    expect(asked.slice(1)).toEqual(['close 1', 'close 4'])
    expect([isOver, open.size]).toEqual([false, 4])
    closings[1]?.()
    await ending
    expect(open.size).toBe(0)
  })

  it('for which room is short wait for those that are ending, then for the one kept longest, then are as many as there can be [A.07]', async () => {
    const { views: from, asked, closings, open } = source(3)
    const views = new Views({ source: from, turns: new Mutex(), logger: silentLogger })
    const [leaving, kept, used] = (await Promise.all([1, 2, 3].map(() => views.open()))).map(viewOf)
    if (leaving === undefined || kept === undefined || used === undefined) throw new Error('too few')
    views.keep('root/kept', kept)
    views.close(leaving)
    const opening = Promise.all([1, 2, 3].map(() => views.open()))
    await expect.poll(() => asked.at(-1)).toBe('open 3')
    closings[0]?.()
    await expect.poll(() => asked.filter((one) => one === 'close 1').length).toBe(2)
    expect(views.find('root/kept')).toBeUndefined()
    closings[1]?.()
    expect((await opening).map(pathOf)).toEqual(['/v/', '/v/', 'busy'])
    expect(open.size).toBe(3)
  })

  it('that cannot be made fail alike, and so do those whose source breaks [A.07]', async () => {
    const broken: ViewSource = {
      openViews: async () => ({ ok: false, error: { code: 'internal', message: 'no' } }),
      closeViews: async () => ({ ok: true, value: undefined }),
    }
    const failing = new Views({ source: broken, turns: new Mutex(), logger: silentLogger })
    expect((await Promise.all([failing.open(), failing.open()])).map(pathOf)).toEqual([
      'internal',
      'internal',
    ])
    const short = new Views({
      source: { ...broken, openViews: async () => ({ ok: true, value: [] }) },
      turns: new Mutex(),
      logger: silentLogger,
    })
    await expect(Promise.all([short.open(), short.open()])).rejects.toThrow('fewer views')
    const throwing = new Views({
      source: { ...broken, openViews: () => Promise.reject(new Error('gone')) },
      turns: new Mutex(),
      logger: silentLogger,
    })
    await expect(throwing.open()).rejects.toThrow('gone')
  })
})
