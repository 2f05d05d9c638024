/** Calls of functions with code. */
import { CodeFunction } from '#specs/protocol/workflow.ts'
import { toTool } from '../../tools/code/functions.ts'
import type { HostileCode } from './hostile-code.ts'

type Called = Pick<HostileCode, 'language' | 'code'> & Partial<HostileCode>

/** Calls it with 1. @returns JSON of the value, or `CODE: MESSAGE` */
export async function callFunction(
  { language, code, name = 'work', returns, timeoutMs = 60_000 }: Called,
  parts: Parameters<typeof toTool>[1],
  memoryMiB = 96,
): Promise<string> {
  const one = CodeFunction.parse({
    name,
    description: 'Works.',
    parameters: { type: 'object', properties: { a: { type: 'integer' } } },
    language,
    code,
    timeoutMs,
    memoryMiB,
    ...(returns === undefined ? {} : { returns }),
  })
  const signal = AbortSignal.timeout(150_000)
  const result = await toTool(one, parts).execute({ a: 1 }, { signal, emitOutput: () => undefined })
  return result.ok ? JSON.stringify(result.value) : `${result.error.code}: ${result.error.message}`
}
