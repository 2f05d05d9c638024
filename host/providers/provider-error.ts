/** Why no model server can be used. */

/** The message names the setting and what to do. */
export interface ProviderError {
  readonly code:
    | 'invalid_url'
    | 'insecure_url'
    | 'invalid_key'
    | 'missing_key'
    | 'invalid_model'
    | 'missing_model'
    | 'unknown_provider'
    | 'ambiguous_provider'
  readonly message: string
}

export function failure(
  code: ProviderError['code'],
  message: string,
): { readonly ok: false; readonly error: ProviderError } {
  return { ok: false, error: { code, message } }
}
