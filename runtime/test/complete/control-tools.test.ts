// The tools by which a model ends its run.
import { describe, expect, it } from 'vitest'
import { DEFAULT_CONTROL_TOOL_RECOVERY_INSTRUCTION } from '../../index.ts'
import { calls, text } from '../../testing/index.ts'
import { prepare } from './support.ts'

const call = (name: string, args: unknown = {}) => ({ name, arguments: args })
const answer = call('final_answer', { answer: 'It is 7.' })

describe('control tools', () => {
  it('are offered on request, and final_answer ends the run with its answer [S2.33]', async () => {
    const { model, runtime, request } = prepare([calls(answer)], { controlTools: true })
    expect(await runtime.complete(request)).toMatchObject({
      status: 'completed',
      reason: 'final_answer',
      content: 'It is 7.',
    })
    const names = model.requests[0]?.tools.map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(['blocked', 'final_answer', 'need_user_input', 'look']))
    const without = prepare([text('7')])
    await without.runtime.complete(without.request)
    expect(without.model.requests[0]?.tools.map(({ name }) => name)).not.toContain('final_answer')
  })

  it('say what is in the way, or what a person has to decide [S2.33]', async () => {
    const blocked = prepare([calls(call('blocked', { reason: 'no access' }))], { controlTools: true })
    expect(await blocked.runtime.complete(blocked.request)).toMatchObject({
      status: 'failed',
      reason: 'blocked',
      content: 'no access',
    })
    const questions = [{ id: 'sure', question: 'Sure?', kind: 'confirm' }]
    const asking = prepare([calls(call('need_user_input', { questions }))], { controlTools: true })
    const result = await asking.runtime.complete(asking.request)
    expect(result).toMatchObject({
      status: 'waiting_for_human',
      reason: 'needs_user_input',
      pending: [{ status: 'pending', questions }],
    })
    expect(result.pending[0]?.requestId).toBe(result.messages.at(-1)?.tool_calls?.[0]?.id)
  })

  it('must be the only call of their turn: beside others they are refused, and the others run [S2.33]', async () => {
    const { model, runtime, request, executed } = prepare([calls(call('save'), answer), calls(answer)], {
      controlTools: true,
    })
    expect(await runtime.complete(request)).toMatchObject({ reason: 'final_answer', loop: { iterations: 2 } })
    expect(executed).toEqual(['save'])
    expect(model.requests[1]?.messages.at(-1)?.content).toContain('must be the only call of its turn')
    const two = prepare([calls(answer, call('blocked', { reason: 'x' })), calls(answer)], {
      controlTools: true,
    })
    expect(await two.runtime.complete(two.request)).toMatchObject({ loop: { iterations: 2 } })
  })

  it('take no final answer before the required evidence, and no arguments that do not fit [S2.33 S2.27]', async () => {
    const { model, runtime, request } = prepare(
      [calls(call('final_answer', { answer: '' })), calls(answer), calls(call('look')), calls(answer)],
      { controlTools: true, requiredEvidence: 'read' },
    )
    expect(await runtime.complete(request)).toMatchObject({ reason: 'final_answer', evidence: ['read'] })
    const last = model.requests.map(({ messages }) => messages.at(-1)?.content ?? '')
    expect(last[1]).toContain('tool_parameter_validation_failed')
    expect(last[2]).toContain('no call has yet proved read')
  })

  it('are the only end: a text is rejected with the names of the tools [S2.33]', async () => {
    const { model, runtime, request } = prepare([text('It is 7.'), calls(answer)], { controlTools: true })
    expect(await runtime.complete(request)).toMatchObject({ reason: 'final_answer' })
    expect(model.requests[1]?.messages.at(-1)?.content).toBe(DEFAULT_CONTROL_TOOL_RECOVERY_INSTRUCTION)
  })

  it('have names that the application cannot use beside them [S2.33 S2.11]', async () => {
    const { runtime, request, tools } = prepare([text('7')], { controlTools: true })
    const own = { ...request, tools: { blocked: tools.look } }
    await expect(runtime.complete(own)).rejects.toMatchObject({ code: 'invalid_options' })
    const without = prepare([text('7')])
    expect(
      (await without.runtime.complete({ ...without.request, tools: { blocked: tools.look } })).status,
    ).toBe('completed')
  })
})
