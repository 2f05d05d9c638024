/**
 * Selects the model of an end-to-end run: a real one from its provider's variables, or with `--dry-run` a scripted
 * one on loopback, over the same requests. Reads no file; a key stays in its variable.
 */
import { parseArgs } from 'node:util'
import { getProviderStatus, type LLMRequest } from '../../runtime/index.ts'
import { createScriptedModel, type ScriptedReply } from '../../runtime/testing/index.ts'

export interface Target extends AsyncDisposable {
  /** For a request of the library. */
  readonly model: Pick<LLMRequest, 'provider' | 'providers' | 'model'>
  /** Throws when a dry run did not make all expected requests. */
  check(): void
}

/** @param dry what the scripted model answers in a dry run */
export async function openTarget(dry: readonly ScriptedReply[]): Promise<Target> {
  const { values } = parseArgs({ options: { 'dry-run': { type: 'boolean', default: false } } })
  if (values['dry-run']) return openDryTarget(dry)
  const { CAISSON_E2E_PROVIDER, CAISSON_E2E_MODEL } = process.env
  const configured = getProviderStatus().filter(
    ({ configured, missing }) => configured && missing.length === 0,
  )
  // Ollama requires no settings, so it always counts as configured; it is used only when named.
  const provider = CAISSON_E2E_PROVIDER ?? configured.find((one) => one.provider !== 'ollama')?.provider
  if (provider === undefined || CAISSON_E2E_MODEL === undefined)
    throw new Error(
      'there is no model to ask: set CAISSON_E2E_MODEL to a model id, and the variables of its provider (OPENAI_COMPATIBLE_BASE_URL for a server of your own, NVIDIA_API_KEY, OPENAI_API_KEY, …; CAISSON_E2E_PROVIDER chooses among several), or use the dry run',
    )
  process.stdout.write(`asking ${CAISSON_E2E_MODEL} of ${provider}\n`)
  return {
    model: { provider, model: CAISSON_E2E_MODEL },
    check: () => undefined,
    [Symbol.asyncDispose]: async () => undefined,
  }
}

async function openDryTarget(replies: readonly ScriptedReply[]): Promise<Target> {
  const model = createScriptedModel({ replies })
  const provider = { baseUrl: await model.listen() }
  process.stdout.write('asking a scripted model on loopback (dry run)\n')
  return {
    model: {
      provider: 'openai-compatible',
      providers: { 'openai-compatible': provider },
      model: 'scripted',
    },
    check: () => model.assertDone(),
    [Symbol.asyncDispose]: () => model[Symbol.asyncDispose](),
  }
}
