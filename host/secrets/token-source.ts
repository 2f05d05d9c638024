/** A secret that the host renews by itself, and that goes to one server alone. */
import type { Result } from '#specs/protocol/error.ts'
import type { Secret } from '../keys/secret.ts'
import type { Target } from '../net/target.ts'

export interface TokenSource {
  /** The host in its one spelling, whose answers are searched for the token. */
  readonly host: string
  /** Why a request may not carry it; null when it may. */
  whyNot(target: Target): string | null
  /** The error is for the agent. */
  read(): Promise<Result<Secret, string>>
  /**
   * The server answered 401 or 403. @param challenge its `WWW-Authenticate` @param token what the request had
   * @returns `renewed`: the request may be made again; words for the agent; null: the answer is about something else
   */
  refused(
    status: number,
    challenge: string | undefined,
    token: string,
  ): Promise<'renewed' | { readonly words: string } | null>
}
