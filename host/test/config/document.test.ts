import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { parse } from 'smol-toml'
import { describe, expect, it } from 'vitest'
import { readConfig } from '../../config/load.ts'
import { Config, ProviderSettings } from '../../config/schema.ts'
import { makePolicy } from '../../egress/policy.ts'
import { openNetwork } from '../../net/network.ts'
import { chooseProvider } from '../../providers/providers.ts'

async function example(): Promise<string> {
  const text = await readFile(path.join(import.meta.dirname, '../../../specs/configuration.md'), 'utf8')
  return /```toml\n([\s\S]*?)```/.exec(text)?.[1] ?? ''
}

describe('the example in the document on the configuration', () => {
  it('fits, and shows every section and every setting of a provider [S1.15] [H.01]', async () => {
    const text = await example()
    const read = readConfig(text, 'configuration.md')
    if (!read.ok) throw new Error(read.error)
    expect(Object.keys(parse(text)).sort()).toEqual(Object.keys(Config.shape).sort())
    const shown = new Set(Object.values(read.value.providers).flatMap((provider) => Object.keys(provider)))
    expect([...shown].sort()).toEqual(Object.keys(ProviderSettings.shape).sort())
    const { limits, network, search, secrets, embeddings } = read.value
    expect(Object.keys(limits).sort()).toEqual(Object.keys(Config.shape.limits.unwrap().shape).sort())
    expect([network.proxy, network.ca, search, secrets.GITHUB_TOKEN, embeddings]).not.toContain(undefined)
    for (const source of ['env', 'file', 'keyring', 'command']) expect(text).toContain(`{ ${source} = `)
  })

  it('means what it says: servers, rules and proxy can be used [S1.15 S0.09]', async () => {
    const read = readConfig(await example(), 'configuration.md')
    if (!read.ok) throw new Error(read.error)
    const config = read.value
    const of = (model: string) => {
      const chosen = chooseProvider({ env: {}, config, model })
      return chosen.ok ? `${chosen.value.name} ${chosen.value.model}` : chosen.error.message
    }
    expect(of('qwen3-coder')).toBe('local qwen3-coder')
    expect(of('local-small')).toBe('local local-small')
    expect(of('office/gpt')).toBe('office gpt')
    expect(of('something')).toBe('nvidia something')
    expect(chooseProvider({ env: {}, config })).toMatchObject({
      value: { model: config.model, price: { input: 0.1 } },
    })
    expect(
      makePolicy({ configuration: config.egress.rules, otherwise: config.egress.default }),
    ).toMatchObject({ ok: true })
    expect(openNetwork({ ...config.network, ca: undefined }, {})).toMatchObject({ ok: true })
  })
})
