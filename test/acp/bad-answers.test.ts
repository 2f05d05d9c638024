// Answers of bad clients to permission requests, frame by frame to a real `caisson acp`, by both versions of the protocol.
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import {
  call,
  type EditorPlace,
  editorPlace,
  hasResult,
  startProgram,
  useMachine,
  vmFlags,
} from './support.ts'

const machine = useMachine()

interface Frame {
  readonly id?: number | string | null
  readonly method?: string
  readonly params?: Record<string, unknown>
  readonly result?: Record<string, unknown>
  readonly error?: { readonly code: number }
}

/** Writes frames as it likes. Its run asks before it deletes a.txt. */
async function openRaw(version: 1 | 2) {
  const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) =>
    hasResult(asked) ? reply({ text: 'I tried.' }) : call('delete_file', { path: 'a.txt' }),
  )
  const program = startProgram(place, [...vmFlags, ...(version === 2 ? ['--unstable', 'v2'] : [])])
  const { stdin, stdout } = program.child
  const frames: Frame[] = []
  createInterface({ input: stdout }).on('line', (line) => void frames.push(JSON.parse(line) as Frame))
  const send = (frame: Frame) => void stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...frame })}\n`)
  const find = async (is: (frame: Frame) => boolean): Promise<Frame> => {
    await expect.poll(() => frames.some(is), { timeout: 60_000 }).toBe(true)
    return frames.find(is) as Frame
  }
  const info = { name: 'raw', version: '1' }
  const who = version === 2 ? { info } : { clientInfo: info }
  send({ id: 'i', method: 'initialize', params: { protocolVersion: version, ...who } })
  expect(await find(({ id }) => id === 'i')).toMatchObject({ result: { protocolVersion: version } })
  send({ id: 'n', method: 'session/new', params: { cwd: place.workspace, mcpServers: [] } })
  const { result } = await find(({ id }) => id === 'n')
  const sessionId = result?.sessionId as string
  const prompt = [{ type: 'text', text: 'Delete a.txt' }]
  return {
    ...{ place, program, frames, send, find, sessionId },
    prompt: () => send({ id: 'p', method: 'session/prompt', params: { sessionId, prompt } }),
    question: async () => await find(({ method }) => method === 'session/request_permission'),
    isThere: () => existsSync(path.join(place.workspace, 'a.txt')),
  }
}

/** The answer that a question of the protocol has. */
function answerTo({ id, params }: Frame, kind: string): Frame {
  const options = params?.options as { optionId: string; kind: string }[]
  const { optionId } = options.find((option) => option.kind === kind) ?? { optionId: '' }
  return { ...(id === undefined ? {} : { id }), result: { outcome: { outcome: 'selected', optionId } } }
}

async function decisionsOf({ host }: EditorPlace): Promise<unknown[]> {
  const [run] = await host.runs.list()
  const events = await host.runs.read(run?.id ?? '')
  return events.flatMap(({ event }) => (event.type === 'approval-decision' ? [event.decision] : []))
}

/** Command lines of processes with the state folder of the test in their environment. */
async function processesOf({ home }: EditorPlace): Promise<string[]> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = ids.map(async (id) => {
    const environment = await readFile(`/proc/${id}/environ`, 'utf8').catch(() => '')
    return environment.includes(home) ? await readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '') : ''
  })
  return (await Promise.all(found)).filter((line) => line !== '')
}

describe.each([1, 2] as const)('a client of version %i', { timeout: 180_000 }, (version) => {
  it('decides nothing by an answer that nobody asked for, and once by many answers [H.03 S1.11]', async () => {
    const { place, program, send, prompt, question, find, isThere } = await openRaw(version)
    // IDs that the agent may use next.
    for (const id of [0, 1, 2, 3, 4, 5, 'x', '0', '1'])
      send({ id, result: { outcome: { outcome: 'selected', optionId: 'answer-1' } } })
    prompt()
    const asked = await question()
    expect(await decisionsOf(place)).toEqual([])
    expect(await place.host.runs.pendingApprovals()).toHaveLength(1)
    send(answerTo(asked, 'reject_once'))
    for (const kind of ['allow_once', 'allow_always', 'allow_once']) send(answerTo(asked, kind))
    const isOver = ({ id, params }: Frame) =>
      version === 1 ? id === 'p' : (params?.update as { state?: string } | undefined)?.state === 'idle'
    await find(isOver)
    send(answerTo(asked, 'allow_once'))
    send({ id: 'last', method: 'session/list', params: {} })
    await find(({ id }) => id === 'last')
    expect([await decisionsOf(place), isThere()]).toEqual([['deny'], true])
    program.child.stdin.end()
    expect(await program.ended).toBe(0)
  })

  it('decides nothing by an answer to a question that was withdrawn [H.03 S1.11]', async () => {
    const { place, program, send, prompt, question, find, isThere } = await openRaw(version)
    prompt()
    const asked = await question()
    const [{ runId, approval } = { runId: '', approval: { approvalId: '' } }] =
      await place.host.runs.pendingApprovals()
    await place.host.answer(runId, approval.approvalId, { decision: 'deny', scope: 'once' }, { by: 'test' })
    const { params } = await find(({ method }) => method === '$/cancel_request')
    expect(params).toMatchObject({ requestId: asked.id })
    send(answerTo(asked, 'allow_once'))
    send(answerTo(asked, 'allow_always'))
    await expect
      .poll(async () => (await place.host.runs.summary(runId)).state.end, { timeout: 60_000 })
      .not.toBeNull()
    expect([await decisionsOf(place), isThere()]).toEqual([['deny'], true])
    program.child.stdin.end()
    expect(await program.ended).toBe(0)
  })

  it.each(['its input ends', 'it is killed'])(
    'allows nothing when %s at a question: the run waits, and no process stays behind it [H.03 S1.11]',
    async (how) => {
      const { place, program, prompt, question, isThere } = await openRaw(version)
      prompt()
      await question()
      if (how === 'it is killed') program.child.kill('SIGKILL')
      else program.child.stdin.end()
      await program.ended
      const [run] = await place.host.runs.list()
      expect(run).toMatchObject({ isLive: true, pendingApprovals: 1, status: 'waiting' })
      expect([await decisionsOf(place), isThere()]).toEqual([[], true])
      await place.host.cancel(run?.id ?? '', { by: 'test' })
      await expect
        .poll(async () => (await place.host.runs.list())[0]?.status, { timeout: 60_000 })
        .toBe('cancelled')
      expect(isThere()).toBe(true)
      await expect.poll(async () => await processesOf(place), { timeout: 30_000 }).toEqual([])
    },
  )
})
