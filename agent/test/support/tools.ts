/** Calls a tool the way the registry does, without a model: arguments parsed by its schema, output checked against its own. */
import { type ChildProcess, spawn } from 'node:child_process'
import type { z } from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import { createHelper, type Helper, type HelperExecResult } from '../../link/root-helper.ts'
import { type Invocation, type InvokeContext, invokeTool } from '../../tool-calls/call.ts'
import { createRegistry, type Registry } from '../../tool-calls/registry.ts'
import { type Tool, type ToolContext, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import type { RunSandboxed } from '../../tools/files/search.ts'
import { silentLogger } from './run.ts'

export const quietContext: ToolContext = { signal: new AbortController().signal, emitOutput: () => undefined }

/** What a call needs, without a run: everything is allowed. */
export function callContext(fields: Partial<InvokeContext> = {}): InvokeContext {
  return {
    ...quietContext,
    askTools: new Set(),
    onStart: () => Promise.resolve(),
    requestApproval: () => Promise.resolve({ decision: 'allow' }),
    ...fields,
  }
}

/** Calls a tool as the model does; `input` is the arguments' text, or their value. */
export function callAsModel(
  tools: readonly Tool[] | Registry,
  name: string,
  input: unknown,
  fields: Partial<InvokeContext> = {},
): Promise<Invocation> {
  const registry = 'byName' in tools ? tools : createRegistry(tools, { logger: silentLogger })
  const argumentsText = typeof input === 'string' ? input : JSON.stringify(input)
  return invokeTool(registry, { id: fields.callId ?? 'c1', name, argumentsText }, callContext(fields))
}

/** Calls `tool`; throws if the input does not fit its schema or the value does not fit its output schema. */
export async function call<I extends z.ZodType, O extends z.ZodType>(
  tool: Tool<I, O>,
  input: z.input<I>,
  context: ToolContext = quietContext,
): Promise<Result<z.output<O>>> {
  const result = await tool.execute(tool.inputSchema.parse(input), context)
  if (result.ok) tool.outputSchema.parse(result.value)
  return result
}

/** The value of a call that has to succeed. */
export async function callGood<I extends z.ZodType, O extends z.ZodType>(
  tool: Tool<I, O>,
  input: z.input<I>,
): Promise<z.output<O>> {
  const result = await call(tool, input)
  if (!result.ok) throw new Error(`${tool.name} failed: ${result.error.code} ${result.error.message}`)
  return result.value
}

/** Runs programs in `root` on this machine: what the sandbox does in the guest, without the sandbox. */
export function runInFolder(root: string): RunSandboxed {
  return ({ argv, timeoutMs }, { signal, onOutput }) =>
    new Promise((resolve) => {
      const [program = 'false', ...rest] = argv
      const child: ChildProcess = spawn(program, rest, {
        cwd: root,
        signal,
        timeout: timeoutMs,
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      child.stdout?.on('data', (bytes: Buffer) => onOutput('stdout', bytes))
      child.stderr?.on('data', (bytes: Buffer) => onOutput('stderr', bytes))
      child.on('error', (error) => resolve(toolFailure('internal', error.message)))
      child.on('close', (exitCode) => resolve(toolSuccess({ exitCode, timedOut: false })))
    })
}

/** The helper whose programs run in `root` on this machine, without the sandbox; it can do nothing else. */
export function helperInFolder(root: string): Helper {
  return {
    ...createHelper('/nonexistent/helper.sock'),
    execInSandbox: ({ argv, env, stdin, limits }, { signal, onOutput } = {}) =>
      new Promise((resolve, reject) => {
        const [program = 'false', ...rest] = argv
        const { PATH = '' } = process.env
        const child = spawn(program, rest, {
          cwd: root,
          env: { PATH, ...env },
          timeout: limits.wallMs,
          ...(signal === undefined ? {} : { signal }),
        })
        child.stdout.on('data', (bytes: Buffer) => void onOutput?.('stdout', bytes))
        child.stderr.on('data', (bytes: Buffer) => void onOutput?.('stderr', bytes))
        child.on('error', reject)
        child.on('close', (exitCode, ended) => {
          const value: HelperExecResult = {
            exitCode,
            signal: ended,
            timedOut: false,
            oomKilled: false,
            pidsRefused: 0,
            durationMs: 1,
          }
          resolve({ ok: true, value })
        })
        child.stdin.on('error', () => undefined)
        child.stdin.end(stdin ?? '')
      }),
  }
}
