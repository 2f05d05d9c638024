/**
 * Converts an upstream's error, which `specs/node/provider-quirks/` reads, to the guest's form, without the key and with
 * what the user can do.
 */
import { suggestedModels } from '#specs/node/provider-quirks/capabilities.ts'
import { readErrorBody } from '#specs/node/provider-quirks/provider-error.ts'
import { boundMessage, type WireError } from '../net/gateway-error.ts'
import { createKeyRedaction } from '../secrets/redaction.ts'
import type { Provider } from './providers.ts'
import { isNvidiaAddress } from './server-address.ts'

/** Maximum bytes read of an error body. */
export const errorBodyMaxBytes = 64 * 1024

/**
 * @param status the upstream's, 400 to 599
 * @param body its first bytes, as text
 * @param provider its key is removed from the message, and its settings are named
 */
export function readUpstreamError(
  status: number,
  body: string,
  provider: Pick<Provider, 'key' | 'keySetting' | 'name'>,
): WireError {
  const redaction = createKeyRedaction(provider.key?.reveal() ?? null)
  const read = readErrorBody(body)
  const message = read.message === '' ? 'the model server gave no reason' : read.message
  return {
    status,
    message: boundMessage(redaction.text(`HTTP ${status}: ${message}${remedyFor(status, body, provider)}`)),
    type: redaction.text(word(isUri(read.type) ? '' : read.type) ?? typeOfStatus(status)),
    code: redaction.text(word(read.status) ?? word(read.code) ?? String(status)),
  }
}

/** What to do about a model that its server does not have. @param gone ids also known to be gone */
export function modelRemedy({ model, baseUrl }: Provider, gone: readonly string[]): string {
  const choose = `${model} is not available there; choose another (option model, CAISSON_MODEL)`
  if (baseUrl === null || !isNvidiaAddress(baseUrl)) return choose
  const others = suggestedModels.filter((id) => id !== model && !gone.includes(id)).slice(0, 3)
  return others.length === 0 ? choose : `${choose}, such as ${others.join(', ')}`
}

/** What to do about a model that does not accept tools. */
export function toolsRemedy(model: string): string {
  return `${model} takes no tools, and the agent works by tools; choose another model (option model, CAISSON_MODEL), or switch tools on at its server`
}

function typeOfStatus(status: number): string {
  if (status === 401 || status === 403) return 'authentication_error'
  if (status === 402) return 'payment_required'
  if (status === 404) return 'not_found_error'
  if (status === 410) return 'gone'
  if (status === 429) return 'rate_limit_error'
  return status >= 500 ? 'server_error' : 'invalid_request_error'
}

/** What the user can do; the guest's model can do nothing about these. */
function remedyFor(
  status: number,
  body: string,
  { key, keySetting, name }: Pick<Provider, 'key' | 'keySetting' | 'name'>,
): string {
  if (status === 401 || status === 403) {
    if (key !== null) return ` (check the key in ${keySetting ?? 'its setting'})`
    return ` (set a key for the provider ${name})`
  }
  if (status === 402) return ' (the account of the key has no credit left)'
  if (status === 404 && /^\s*404 page not found/i.test(body)) {
    return " (the address is wrong: it ends with /v1, once; set it in CAISSON_LLM_URL or in the provider's url)"
  }
  return ''
}

/** problem+json identifies its kind by a URI. */
function isUri(type: string): boolean {
  return /^(?:urn|about|https?):/i.test(type)
}

function word(text: string): string | undefined {
  return text === '' ? undefined : text.toWellFormed().slice(0, 100)
}
