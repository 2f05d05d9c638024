import { describe, expect, it } from 'vitest'
import { parseConfig } from '../../config/load.ts'
import { applyOverrides, withoutOverridden } from '../../config/overrides.ts'
import { nearestName } from '../../files/nearest-name.ts'

const read = (table: object, ...overrides: string[]) => parseConfig(table, 'FILE', overrides)

describe('settings of the command line', () => {
  it('stand over those of the file, one by one and tables by name [H.01]', () => {
    const table = { model: 'a', limits: { maxTokens: 5, maxRequests: 7 } }
    const whole = read(
      table,
      'model=qwen3',
      'limits.maxTokens = 50_000',
      'prices."nvidia/*"={ input = 0.1, output = 1 }',
      'prices."nvidia/*".output=2',
      'egress.rules=[{ effect = "allow", host = "pypi.org" }]',
    )
    expect(whole).toMatchObject({
      ok: true,
      value: {
        model: 'qwen3',
        limits: { maxTokens: 50_000, maxRequests: 7 },
        prices: { 'nvidia/*': { input: 0.1, output: 2 } },
        egress: { rules: [{ host: 'pypi.org' }] },
      },
    })
    expect(table).toEqual({ model: 'a', limits: { maxTokens: 5, maxRequests: 7 } })
  })

  it.each([
    ['limits.maxTokns=5', 'did you mean limits.maxTokens?'],
    ['modle=x', 'did you mean model?'],
    ['providers.local.ulr="http://127.0.0.1/v1"', 'did you mean providers.local.url?'],
    ['limits.maxTokens=many', 'limits.maxTokens: must be a number, got text'],
    ['effort=max', 'effort: must be one of "none", "low", "medium", "high", got "max"'],
    ['effort=sk-0123456789abcdef', '"high", got text'],
    ['model=7', 'model: must be text'],
    ['model', 'expected KEY=VALUE'],
    ['=x', 'expected KEY=VALUE'],
    ['__proto__.polluted=1', 'expected KEY=VALUE'],
    ['model=', 'has no value'],
    ['egress.rules=[{', 'is not a TOML value'],
    ['constructor.prototype.x=1', '"constructor"'],
  ])('%j is refused with what is wrong, and what may have been meant [H.01]', (override, words) => {
    const whole = read({}, override)
    expect(whole).toEqual({ ok: false, error: expect.stringContaining(words) })
    expect(Reflect.get({}, 'polluted')).toBeUndefined()
  })

  it('repeat no value, which may be a key, and do not excuse a file that is wrong [H.01]', () => {
    const secret = 'sk-0123456789'
    for (const override of [`providers.x.key="${secret}"`, `limits=${secret}`, `secrets.A=["${secret}`])
      expect(JSON.stringify(read({}, override))).not.toContain(secret)
    expect(read({ modle: 'x' }, 'model=y')).toMatchObject({
      ok: false,
      error: expect.stringMatching(/^FILE: .*did you mean model\?/),
    })
  })

  it('win over the variables for the same setting, and no others [H.01]', () => {
    const env = { CAISSON_MODEL: 'a', CAISSON_LLM_URL: 'b', NVIDIA_API_KEY: 'c' }
    expect(withoutOverridden(env, ['limits.maxTokens=5'])).toBe(env)
    expect(withoutOverridden(env, ['model=x'])).toEqual({ ...env, CAISSON_MODEL: undefined })
    expect(withoutOverridden(env, ['providers.nvidia.key={ env = "K" }']).NVIDIA_API_KEY).toBeUndefined()
    expect(withoutOverridden(env, ['provider=offline']).CAISSON_LLM_URL).toBeUndefined()
  })

  it('are bounded, and a name is only offered when it is near [H.01]', () => {
    expect(applyOverrides({}, [`${'a.'.repeat(9)}b=1`]).ok).toBe(false)
    expect(nearestName('zzz', ['model', 'limits'])).toBeUndefined()
    expect(nearestName('x'.repeat(100_000), ['model'])).toBeUndefined()
  })
})
