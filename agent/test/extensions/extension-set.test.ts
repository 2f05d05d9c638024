import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { reply } from '#specs/testing/model-replies.ts'
import type { Script } from '#specs/testing/model-server.ts'
import type { Extension, ExtensionParts, OpenExtension } from '../../extensions/extension.ts'
import { defineTool, type Tool, toolSuccess } from '../../tool-calls/tool.ts'
import { answer, call, eventsOf, onePlan, runTask, working } from '../hostile/world.ts'
import { isOfSubAgent, isPlanning } from '../support/scripted-model.ts'

const toolNamed = (name: string, say: () => string = () => name): Tool =>
  defineTool({
    name,
    description: `${name}.`,
    inputSchema: z.strictObject({}),
    outputSchema: z.string(),
    requiresApproval: false,
    readOnly: true,
    runs: 'server',
    execute: () => Promise.resolve(toolSuccess(say())),
  })

interface Diary {
  readonly opened: ExtensionParts[]
  readonly workspaces: { agentPath: string; root: string; view?: string; signal: AbortSignal }[]
  closed: number
}

/** One that brings tools of these namesthat say for whom they were made. */
function bringing(names: readonly string[], changes: Partial<Extension> = {}): [OpenExtension, Diary] {
  const diary: Diary = { opened: [], workspaces: [], closed: 0 }
  const open: OpenExtension = async (parts) => {
    diary.opened.push(parts)
    return {
      toolsFor: (workspace, signal) => {
        diary.workspaces.push({ ...workspace, signal })
        return Promise.resolve(names.map((name) => toolNamed(name, () => `for ${workspace.agentPath}`)))
      },
      close: () => Promise.resolve(void diary.closed++),
      ...changes,
    }
  }
  return [open, diary]
}

const outputs = (ending: Parameters<typeof eventsOf>[0]): string[] =>
  eventsOf(ending, 'tool-end').map(({ output }) => output)

describe('what a task brings', () => {
  it('is there from before the plan to the end of the run, under names of any provider [S2.11]', async () => {
    const [open, diary] = bringing(['Weather-Now'])
    const ending = await runTask(working(call('Weather-Now', {}), answer('done')), { extensions: [open] })
    expect(ending.completion).toMatchObject({ outcome: 'completed' })
    expect(outputs(ending)).toEqual(['"for root"'])
    expect(ending.asked.at(-1)?.tools.map((tool) => tool.function.name)).toContain('Weather-Now')
    expect(diary.workspaces).toMatchObject([{ agentPath: 'root', root: '/mnt/workspace' }])
    expect(diary.closed).toBe(1)
    expect(diary.opened[0]?.signal.aborted).toBe(true)
  })

  it('never stands in the place of a tool of the agent, nor of one that came before [S2.11]', async () => {
    const [first] = bringing(['read_file', 'look_up', 'Shell-Cmd'])
    const [second, diary] = bringing(['look_up'])
    const script = working(call('look_up', {}), call('read_file', { path: 'a.txt' }), answer('done'))
    const ending = await runTask(script, { extensions: [first, second], files: { 'a.txt': 'content' } })
    expect(outputs(ending)[1]).toContain('content')
    expect(eventsOf(ending, 'note').map(({ text }) => text)).toEqual([
      'a tool named read_file is left out: the name is reserved',
      'a tool named Shell-Cmd is left out: the name is reserved',
      'a second tool named look_up is left out',
    ])
    expect([...(diary.opened[0]?.taken ?? [])]).toEqual(expect.arrayContaining(['read_file', 'look_up']))
  })

  it('may be named by the task; what nothing brings is refused, with the names that there are [S0.04]', async () => {
    const [open, diary] = bringing(['look_up'])
    const named = await runTask(working(answer('done')), {
      extensions: [open],
      task: { tools: ['look_up'] },
    })
    expect(named.asked.at(-1)?.tools.map((tool) => tool.function.name)).toEqual(['look_up'])
    for (const task of [{ tools: ['look_down'] }, { askTools: ['look_down'] }]) {
      const { completion } = await runTask(working(answer('done')), { extensions: [open], task })
      expect(completion).toMatchObject({ outcome: 'failed', reason: 'environment' })
      expect(completion.message).toMatch(/"look_down".*look_up.*read_file/)
    }
    expect(diary.closed).toBe(3)
  })

  it('is made again over the view of each sub-agent, and ends with it [A.07]', async () => {
    const [open, diary] = bringing(['look_up'])
    let turn = 0
    const script: Script = (asked) => {
      if (isPlanning(asked)) return onePlan
      if (isOfSubAgent(asked))
        return asked.messages.at(-1)?.role === 'tool' ? answer('seen') : call('look_up', {})
      if (turn++ > 0) return answer('done')
      return reply({ calls: [{ name: 'spawn_agent', arguments: { brief: 'look', name: 'eye' } }] })
    }
    const ending = await runTask(script, { extensions: [open], agents: true })
    expect(outputs(ending)[0]).toBe('"for root/eye"')
    const [, child] = diary.workspaces
    expect(child).toMatchObject({ agentPath: 'root/eye', view: expect.stringMatching(/^v/) })
    expect(child?.signal.aborted).toBe(true)
  })

  it('costs the run nothing but its tools when it fails to open, to have tools, or to close [S4.07 S4.05]', async () => {
    const fault = () => Promise.reject(new Error('out of order'))
    const [noTools, diary] = bringing(['a_tool'], { toolsFor: fault })
    const [noEnd] = bringing(['b_tool'], { close: fault })
    const extensions = [fault, noTools, noEnd, () => Promise.resolve(null)]
    const ending = await runTask(working(call('b_tool', {}), answer('done')), { extensions })
    expect(ending.completion).toMatchObject({ outcome: 'completed', summary: 'done' })
    const notes = eventsOf(ending, 'note').map(({ text }) => text)
    expect(notes).toHaveLength(2)
    expect(notes[0]).toContain('out of order')
    expect(diary.closed).toBe(1)
  })
})
