// Calls of the library's own tools, by the way that applications call them.
import {
  createLLMEnvironment,
  type ExecuteToolOptions,
  executeTool,
  type LLMToolResult,
} from '../../index.ts'

const environment = createLLMEnvironment({ builtIns: true })

/** A caller of one tool in one folder; what it gives is the whole result. */
export function caller(name: string, workingDirectory?: string, used = environment) {
  return async (args: object | string, options: ExecuteToolOptions = {}): Promise<LLMToolResult> => {
    const text = typeof args === 'string' ? args : JSON.stringify(args)
    const call = { id: 'c1', type: 'function', function: { name, arguments: text } } as const
    return await executeTool(used, call, {
      ...(workingDirectory === undefined ? {} : { workingDirectory }),
      ...options,
    })
  }
}

/** The value that a good result holds; throws with the words of any other. */
export function readValue(result: LLMToolResult): Record<string, unknown> {
  if (!result.ok) throw new Error(result.content)
  return JSON.parse(result.content) as Record<string, unknown>
}
