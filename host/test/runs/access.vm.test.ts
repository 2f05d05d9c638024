// Network access of a real VM: the agent and a program ask, a person answers, curl goes through. The model is scripted.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { finish, testBench } from '../support/runs.ts'
import { findQemu } from '../support/vm-processes.ts'

/** A server on this machine's loopback, which only a rule that names it can let the guest reach. */
async function serve(text: string): Promise<number> {
  const server = createServer((_request, response) => response.end(text))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

/** A model that plans one step and makes these calls in it, one a turn. */
async function callsInTurn(calls: readonly { name: string; arguments: object }[]) {
  const plan = { goal: 'g', steps: [{ id: 'one', title: 'One', instructions: 'do', needs: [], writes: [] }] }
  const model = await startModelServer(({ messages, tools }) => {
    if (tools.some((tool) => tool.function.name === 'submit_plan'))
      return reply({ calls: [{ id: 'plan00001', name: 'submit_plan', arguments: plan }] })
    const next = messages.filter(({ role }) => role === 'tool').length
    const call = calls[next]
    return call === undefined
      ? reply({ text: 'done' })
      : reply({ calls: [{ id: `call0000${next}`, ...call }] })
  })
  onTestFinished(() => model[Symbol.asyncDispose]())
  return model
}

/** `--noproxy ''`: this machine's loopback is meant, not the guest's. */
const curl = (port: number) => ({
  name: 'run_bash',
  arguments: { command: `curl -sS -i --noproxy '' http://127.0.0.1:${port}/v1/rates` },
})

describe('network access of the VM', () => {
  it('opens when a person says so, for the run or for one connection, without anything being started anew [G.02, G.03, S1.11]', async () => {
    const [asked, tried] = [await serve('rates of the agent'), await serve('rates of the program')]
    const url = `http://127.0.0.1:${asked}/v1/rates`
    const model = await callsInTurn([
      { name: 'request_access', arguments: { url, reason: 'today’s rates' } },
      curl(asked),
      curl(asked),
      curl(tried),
      curl(tried),
    ])
    const bench = await testBench(
      { 'a.txt': 'a\n' },
      { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'test/model' },
    )
    const rules = [asked, tried].map((port) => ({
      effect: 'ask' as const,
      host: '127.0.0.1',
      schemes: ['http' as const],
      ports: [port],
    }))
    const run = await bench.start('get the rates', { approvals: { interactive: true }, egress: { rules } })
    const answers: ApprovalAnswer[] = [
      { decision: 'allow', scope: 'run' },
      { decision: 'allow', scope: 'once' },
      { decision: 'deny', scope: 'once', hint: 'once was enough' },
    ]
    const questions: Extract<HostEvent, { type: 'approval-request' }>[] = []
    const finished = finish(run)
    for await (const item of run.watch()) {
      if (item.source !== 'host' || item.event.type !== 'approval-request') continue
      questions.push(item.event)
      const answer = answers[questions.length - 1]
      if (answer !== undefined) await run.answer(item.event.request.approvalId, answer)
    }
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(questions.map(({ kind, access }) => [kind, access?.from, access?.offers[0]?.allows])).toEqual([
      ['enforced', 'agent', `http connections to 127.0.0.1 (port ${asked})`],
      ['enforced', 'connection', `http connections to 127.0.0.1 (port ${tried})`],
      ['enforced', 'connection', `http connections to 127.0.0.1 (port ${tried})`],
    ])
    const outputs = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : []))
    expect(outputs[0]).toContain(`allowed: http connections to 127.0.0.1 (port ${asked}), in this run`)
    expect(outputs[1]).toContain('rates of the agent')
    expect(outputs[2]).toContain('rates of the agent')
    expect(outputs[3]).toContain('rates of the program')
    expect(outputs[4]).toMatch(/403[\s\S]*once was enough/)
    const out = events.filter((event) => event.type === 'egress-end')
    expect(out.map(({ rule }) => rule)).toEqual([
      expect.stringContaining('granted for this run'),
      expect.stringContaining('granted for this run'),
      expect.stringContaining('granted once'),
    ])
    expect(events.filter((event) => event.type === 'egress-denied')).toHaveLength(1)
  })

  it('can be asked for from a VM that sleeps until the answer comes, and stays open in the VM after it [G.03, S1.11, V.04, R.01]', async () => {
    const port = await serve('rates after a sleep')
    const url = `http://127.0.0.1:${port}/v1/rates`
    const model = await callsInTurn([
      { name: 'request_access', arguments: { url, reason: 'today’s rates' } },
      curl(port),
      { name: 'run_bash', arguments: { command: 'echo again' } },
      curl(port),
    ])
    const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'test/model' }
    const bench = await testBench({ 'a.txt': 'a\n' }, env)
    const rules = [{ effect: 'ask' as const, host: '127.0.0.1', schemes: ['http' as const], ports: [port] }]
    const run = await bench.start('get the rates', {
      approvals: { interactive: true },
      egress: { rules },
      vm: { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 300 },
    })
    const finished = finish(run)
    let approvalId = ''
    for await (const item of run.watch()) {
      if (item.source !== 'host') continue
      if (item.event.type === 'approval-request') approvalId = item.event.request.approvalId
      if (item.event.type === 'vm-sleep') {
        expect(await run.answer(approvalId, { decision: 'allow', scope: 'run' })).toMatchObject({
          taken: true,
        })
      }
      if (item.event.type === 'egress-end') {
        process.kill(await findQemu(bench.home), 'SIGKILL')
        break
      }
    }
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(events.map(({ type }) => type)).toContain('vm-wake')
    const outputs = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : []))
    expect(outputs[0]).toContain('in this run')
    expect(outputs.at(-1)).toContain('rates after a sleep')
    expect(events.filter(({ type }) => type === 'run-resume')).toHaveLength(1)
    expect(events.filter(({ type }) => type === 'approval-request')).toHaveLength(1)
  })
})
