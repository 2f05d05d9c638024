/** The parts of oidc-provider that the tests use; the package has no types. */
declare module 'oidc-provider' {
  import type { EventEmitter } from 'node:events'
  import type { IncomingMessage, ServerResponse } from 'node:http'

  interface Token {
    readonly aud?: string
  }

  interface Grant {
    addOIDCScope(scope: string): void
    addResourceScope(resource: string, scope: string): void
    save(): Promise<string>
  }

  interface DeviceCode {
    readonly clientId?: string
    readonly params?: Readonly<Record<string, unknown>>
    save(ttl: number): Promise<string>
  }

  interface Interaction {
    readonly prompt: { readonly name: string }
    readonly params: Readonly<Record<string, unknown>>
    readonly session?: { readonly accountId?: string }
  }

  interface Configuration {
    readonly findAccount: (context: unknown, accountId: string) => object
    readonly interactions: { url(context: unknown, interaction: { readonly uid: string }): string }
    readonly features: {
      readonly resourceIndicators: {
        getResourceServerInfo(context: unknown, audience: string): object
        readonly [setting: string]: unknown
      }
      readonly [feature: string]: unknown
    }
    readonly [setting: string]: unknown
  }

  export default class Provider extends EventEmitter {
    readonly Grant: new (of: {
      accountId: string
      clientId: string
    }) => Grant
    readonly AccessToken: { find(token: string): Promise<Token | undefined> }
    readonly ClientCredentials: { find(token: string): Promise<Token | undefined> }
    readonly DeviceCode: { findByUserCode(code: string): Promise<DeviceCode | undefined> }
    constructor(issuer: string, configuration: Configuration)
    callback(): (request: IncomingMessage, response: ServerResponse) => Promise<void>
    interactionDetails(request: IncomingMessage, response: ServerResponse): Promise<Interaction>
    interactionFinished(
      request: IncomingMessage,
      response: ServerResponse,
      result: object,
      options: { mergeWithLastSubmission: boolean },
    ): Promise<void>
  }
}
