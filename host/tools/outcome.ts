/** Converts the result of a host tool's call, within the limits of what the agent may get. */
import type { HostToolResult } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import { HostToolError } from './host-tools.ts'

/** Maximum characters of one call's output for the model. */
const outputMaxChars = 128 * 1024

type Failure = Extract<HostToolResult, { ok: false }>

export function hostToolFailure(code: Failure['error']['code'], message: string, retryable = false): Failure {
  return {
    ok: false,
    error: { code, message: message.toWellFormed().slice(0, limits.textMaxChars), retryable },
  }
}

/** A text as it is, nothing as nothing, anything else as JSON. @throws TypeError for what has no JSON */
export function hostToolOutput(value: unknown): HostToolResult {
  const text = typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value)
  if (text === undefined) throw new TypeError('the value of the tool has no form as JSON')
  return { ok: true, output: bound(text.toWellFormed()) }
}

/** The model gets only the error text that was meant for it. */
export function failureOf(tool: string, thrown: unknown): Failure {
  if (thrown instanceof HostToolError) return hostToolFailure(thrown.code, thrown.message, thrown.retryable)
  return hostToolFailure(
    'internal',
    `${tool} failed on the host; whoever runs it finds the details in the run's log`,
  )
}

/** Within characters, and within a frame: text of control characters grows sixfold there. */
function bound(text: string): string {
  let kept = text.slice(0, outputMaxChars)
  while (Buffer.byteLength(JSON.stringify(kept)) > limits.frameMaxBytes / 2)
    kept = kept.slice(0, kept.length / 2)
  const gone = text.length - kept.length
  return gone === 0 ? text : `${kept.toWellFormed()}\n[… ${gone} characters cut …]`
}
