/** What a call of a host tool gave, in the bounds in which the agent is told of it. */
import type { HostToolResult } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import { HostToolError } from './host-tools.ts'

/** Of what a model is told of one call. */
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

/** Of what was thrown the model is told only what was meant for it. */
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
