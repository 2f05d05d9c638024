/** `createRuntime`: an environment with the calls that use it, for applications that pass it nowhere else. */
import { requireObject } from '#specs/errors.ts'
import type { LLMResponse, LLMStreamChunk } from '../contract/contract.ts'
import {
  checkEnvironment,
  createLLMEnvironment,
  disposeLLMEnvironment,
  type LLMEnvironment,
  type LLMEnvironmentOptions,
} from '../environment/environment.ts'
import { generate, type LLMRequest, stream } from '../generate/generate.ts'
import { complete, streamComplete } from './complete.ts'
import type { CompleteEvent, CompleteRequest, CompleteResult } from './types.ts'

/** A request without what belongs to the environment. */
export type RuntimeRequest<T> = Omit<T, 'environment' | 'providers' | 'skillRoots' | 'mcpConfig'>

/** Its functions work detached from it, too. */
export interface LLMRuntime extends AsyncDisposable {
  readonly environment: LLMEnvironment
  readonly generate: (request: RuntimeRequest<LLMRequest>) => Promise<LLMResponse>
  readonly stream: (request: RuntimeRequest<LLMRequest>) => AsyncGenerator<LLMStreamChunk, LLMResponse>
  readonly complete: (request: RuntimeRequest<CompleteRequest>) => Promise<CompleteResult>
  readonly streamComplete: (
    request: RuntimeRequest<CompleteRequest>,
  ) => AsyncGenerator<CompleteEvent, CompleteResult>
  /** As `disposeLLMEnvironment`. */
  readonly dispose: () => Promise<void>
}

/**
 * @param options of an environment of its own, or `environment`, which the application made and may share
 * @throws as {@link createLLMEnvironment}
 */
export function createRuntime(
  options: LLMEnvironmentOptions | { readonly environment: LLMEnvironment } = {},
): LLMRuntime {
  requireObject('the options', options)
  const environment =
    'environment' in options ? checkEnvironment(options.environment) : createLLMEnvironment(options)
  const dispose = () => disposeLLMEnvironment(environment)
  return {
    environment,
    generate: (request) => generate({ ...request, environment }),
    stream: (request) => stream({ ...request, environment }),
    complete: (request) => complete({ ...request, environment }),
    streamComplete: (request) => streamComplete({ ...request, environment }),
    dispose,
    [Symbol.asyncDispose]: dispose,
  }
}
