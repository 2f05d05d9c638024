// What an application may get wrong with an agent.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  expectRefusal,
  hostileRuns,
  thrownBy,
  wrongOptions,
  wrongText,
} from '../../host/test/support/hostile-values.ts'
import { Agent } from '../index.ts'

describe('an agent that is given what it cannot use', () => {
  it('names the field, and what it may be [S4.01 E.01]', async () => {
    expect(() => new Agent({ vm: 'no' } as never)).toThrow(/options of the agent cannot be used: vm: /)
    expect(() => new Agent({ toolz: {} } as never)).toThrow(/toolz/)
    expect(() => new Agent({ overrides: 'x' } as never)).toThrow(/overrides/)
    expect(() => new Agent({ provider: {} } as never)).toThrow(
      /provider: expected a provider of caisson\/runtime/,
    )
    const agent = new Agent({ vm: false })
    await expect(agent.run('')).rejects.toMatchObject({ name: 'OptionsError' })
    await expect(agent.run('x', { tools: 'math' } as never)).rejects.toThrow(/tools: /)
    await expect(agent.run('x', { timeoutMs: 0 })).rejects.toThrow(/timeoutMs: /)
    const provider = { async *stream() {} }
    await expect(new Agent({ provider }).run('x')).rejects.toThrow(
      /a provider of the application needs vm: false/,
    )
  })

  it('refuses it with a code [S4.01 E.01]', async () => {
    fc.assert(
      fc.property(wrongOptions, (options) => {
        expect(() => new Agent(options as never)).toThrow(
          expect.objectContaining({ code: 'invalid_options' }),
        )
      }),
      hostileRuns,
    )
    const agent = new Agent({ vm: false })
    const refusals = fc.asyncProperty(wrongText, wrongOptions, async (goal, options) => {
      expectRefusal(await thrownBy(() => agent.run(goal as never)))
      expectRefusal(await thrownBy(() => agent.run('x', options as never)))
      expectRefusal(await thrownBy(() => Agent.run('x', options as never)))
    })
    await fc.assert(refusals, hostileRuns)
  })
})
