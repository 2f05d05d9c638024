/**
 * Words for what goes wrong in a sign-in. Answers of servers may repeat tokens and codes, so only their error code and a
 * bounded description are shown, without what was sent.
 */
import { CaissonError } from '#specs/errors.ts'
import type { Redaction } from '../secrets/redaction.ts'
import { RequestFailedError } from './judged-fetch.ts'

const codePattern = /^[a-z0-9_.-]{1,64}$/i
const descriptionMaxChars = 200

/** The error code of an authorization server; undefined for any other failure. */
export function oauthCodeOf(cause: unknown): string | undefined {
  if (!(cause instanceof Error) || cause.name !== 'OAuthError' || !('code' in cause)) return undefined
  return typeof cause.code === 'string' && codePattern.test(cause.code) ? cause.code : 'server_error'
}

/** Whether the authorization server, or one before it, could not answer now. */
export function isOverloaded(cause: unknown): boolean {
  const code = oauthCodeOf(cause)
  if (code === 'temporarily_unavailable') return true
  return code === 'server_error' && /^HTTP 5\d\d/.test((cause as Error).message)
}

/** @param redaction of what was sent */
export function explainFailure(cause: unknown, redaction: Redaction): string {
  if (cause instanceof CaissonError || cause instanceof RequestFailedError)
    return redaction.text(cause.message)
  const code = oauthCodeOf(cause)
  if (code !== undefined) {
    const { message } = cause as Error
    // The library quotes the whole answer where it is none of OAuth.
    const isRaw = code === 'server_error' && /raw body/i.test(message)
    const said = isRaw ? (/^HTTP \d{3}/.exec(message)?.[0] ?? '') : message.slice(0, descriptionMaxChars)
    return `the authorization server answered ${code}${said === '' ? '' : `: ${clean(redaction.text(said))}`}`
  }
  const name = cause instanceof Error ? cause.name : ''
  if (name === 'RegistrationRejectedError')
    return 'the authorization server refused to register a client; register one there and set oauth.clientId'
  if (name === 'IssuerMismatchError')
    return 'the authorization server is not the one that was asked (its issuer is another one); nothing was sent to it'
  if (name === 'InsecureTokenEndpointError') return 'the token endpoint is not https; nothing was sent to it'
  if (name === 'ZodError' || cause instanceof SyntaxError) return 'an answer was not in the form of OAuth'
  return cause instanceof Error
    ? clean(redaction.text(cause.message)).slice(0, descriptionMaxChars)
    : 'it failed'
}

function clean(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?')
}
