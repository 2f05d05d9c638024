import { describe, expect, it } from 'vitest'
import { Config } from '../config/schema.ts'
import { chooseProvider } from '../providers/providers.ts'
import { type AskedOfModel, notesOnOptions } from '../run-notes.ts'

function notes(
  model: string,
  asked: Partial<AskedOfModel>,
  models: Record<string, { maxImages: number }> = {},
): string {
  const providers = { local: { url: 'http://127.0.0.1:8000/v1' } }
  const chosen = chooseProvider({ env: {}, config: Config.parse({ providers, models }), model })
  if (!chosen.ok) throw new Error(chosen.error.message)
  return notesOnOptions(chosen.value, { hasImages: false, fallbacks: [], ...asked }).join('\n')
}

describe('the notes of a run', () => {
  it('name images that its model does not see, and what to do [G.09]', () => {
    expect(notes('qwen3-coder', { hasImages: true })).toMatch(
      /qwen3-coder does not see images.*models\."qwen3-coder"\.maxImages/,
    )
    expect(notes('qwen3-coder', { hasImages: true }, { 'qwen3*': { maxImages: 1 } })).toBe('')
    expect(notes('claude-sonnet-5-5', { hasImages: true })).toBe('')
    expect(notes('qwen3-coder', {})).toBe('')
    expect(notes('caisson/offline', { hasImages: true })).toContain(
      'does not see images; name a model that does',
    )
  })

  it('name options that have no effect with its model [S1.07] [S3.06]', () => {
    expect(notes('caisson/offline', { effort: 'low', fallback: ['m'] })).toBe(
      'The offline model answers, so option effort has no effect.\nThe offline model answers, so option fallback has no effect.',
    )
    expect(notes('caisson/offline', { maxCostUsd: 1 })).toContain('option limits.maxCostUsd has no effect')
    expect(notes('m', { maxCostUsd: 1 })).toBe('')
    const fallbacks = [{ model: 'm', baseUrl: 'http://127.0.0.1:8000/v1' }]
    expect(notes('m', { effort: 'low', fallback: ['m'], fallbacks })).toContain(
      'is the model of the run itself',
    )
    expect(notes('other', { effort: 'low', fallback: ['m'], fallbacks })).toBe('')
  })
})
