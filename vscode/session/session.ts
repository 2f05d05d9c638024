/** The connection to the service: finds it, signs in, and says in which state that is. Keeps tokens in the secret storage. */
import * as vscode from 'vscode'
import { ServiceClient, ServiceError } from '../../client/index.ts'
import { findPlace, isLoopback, namedPlace, type Place } from './place.ts'
import { socketFetch } from './socket-fetch.ts'
import { plainLine } from './text.ts'

/** `none`: no service was found. `unreachable`: the service does not answer, or cannot be used. */
export type Access = 'searching' | 'none' | 'signed-out' | 'unreachable' | 'ready'

export class Session implements vscode.Disposable {
  readonly #secrets: vscode.SecretStorage
  readonly #version: string
  readonly #changed = new vscode.EventEmitter<void>()
  readonly #settings: vscode.Disposable
  #access: Access = 'searching'
  #problem = ''
  #place: Place = { kind: 'none' }
  #client: ServiceClient | undefined
  /** Grows with each {@link reset}: what began before it says nothing any more. */
  #resets = 0

  constructor(secrets: vscode.SecretStorage, version: string) {
    this.#secrets = secrets
    this.#version = version
    this.#settings = vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration('caisson.service')) this.reset()
    })
    this.#set('searching')
  }

  /** Fires when the access became another. */
  readonly onChange = this.#changed.event

  get access(): Access {
    return this.#access
  }

  /** Why the service cannot be used; empty where it can. */
  get problem(): string {
    return this.#problem
  }

  /** Whether the service is on the machine of the extension, and has its files and VMs. */
  get isLocal(): boolean {
    const place = this.#place
    return place.kind === 'local' || (place.kind === 'named' && isLoopback(new URL(place.url)))
  }

  /** Address of the page; undefined where only the socket is known. */
  get address(): string | undefined {
    return this.#place.kind === 'named' ? this.#place.url : undefined
  }

  /** @throws {Error} when there is no access; its message is for the person */
  get client(): ServiceClient {
    if (this.#client !== undefined && this.#access === 'ready') return this.#client
    throw new Error(this.#problem === '' ? 'The extension has no service yet.' : this.#problem)
  }

  /** Forgets the connection, so that the next {@link connect} makes one anew. */
  reset(): void {
    this.#resets += 1
    this.#client = undefined
    this.#set('searching')
  }

  /** The client of a service that can be asked; undefined where there is none, and {@link access} says why. */
  async connect(): Promise<ServiceClient | undefined> {
    if (this.#client !== undefined && this.#access === 'ready') return this.#client
    const resets = this.#resets
    const isOld = () => resets !== this.#resets
    const named = vscode.workspace.getConfiguration('caisson').get<string>('service', '').trim()
    const place = await findPlace(named, this.#version)
    if (isOld()) return undefined
    this.#place = place
    if (place.kind === 'none') return this.#set('none')
    if (place.kind === 'wrong') return this.#set('unreachable', plainLine(place.problem, 500))
    const client = await this.#clientOf(place)
    try {
      await client.call('listRuns', { query: { limit: 1 } })
    } catch (error) {
      if (isOld()) return undefined
      return this.#set(isRefusal(error) ? 'signed-out' : 'unreachable', messageOf(error))
    }
    if (isOld()) return undefined
    this.#client = client
    this.#set('ready')
    return client
  }

  /** Takes a failed request into account. @returns what it says to the person */
  note(error: unknown): string {
    const text = messageOf(error)
    if (isRefusal(error)) this.#set('signed-out', text)
    else if (isLost(error)) this.#set('unreachable', text)
    return text
  }

  /** The service that a token is typed for: undefined where it needs none. */
  get signInAddress(): string | undefined {
    const named = vscode.workspace.getConfiguration('caisson').get<string>('service', '').trim()
    const place = namedPlace(named)
    return place.kind === 'named' ? place.url : undefined
  }

  /**
   * Tries a token, and keeps it only when the service takes it.
   * @param url as {@link signInAddress} had it when the person was asked @throws {Error} when the service does not take it
   */
  async signIn(token: string, url: string): Promise<void> {
    const client = new ServiceClient({ baseUrl: url, token })
    await client.call('listRuns', { query: { limit: 1 } })
    await this.#secrets.store(secretName(url), token)
    this.reset()
  }

  async signOut(): Promise<void> {
    if (this.#place.kind === 'named') await this.#secrets.delete(secretName(this.#place.url))
    this.reset()
  }

  dispose(): void {
    this.#settings.dispose()
    this.#changed.dispose()
  }

  async #clientOf(place: Place & { readonly kind: 'local' | 'named' }): Promise<ServiceClient> {
    if (place.kind === 'local')
      return new ServiceClient({ baseUrl: 'http://localhost', fetch: socketFetch(place.socket) })
    const token = await this.#secrets.get(secretName(place.url))
    return new ServiceClient({ baseUrl: place.url, ...(token === undefined ? {} : { token }) })
  }

  #set(access: Access, problem = ''): undefined {
    const isNew = access !== this.#access || problem !== this.#problem
    this.#access = access
    this.#problem = problem
    if (access !== 'ready') this.#client = undefined
    void vscode.commands.executeCommand('setContext', 'caisson.access', access)
    if (isNew) this.#changed.fire()
  }
}

/** A token belongs to one origin, so that another address never gets it. */
function secretName(url: string): string {
  return `token ${url}`
}

/** Whether the service does not take the token, or wants one. */
function isRefusal(error: unknown): boolean {
  return error instanceof ServiceError && error.status === 401
}

/** Whether the service did not answer. Other errors are of the command that failed. */
function isLost(error: unknown): boolean {
  if (error instanceof ServiceError) return [502, 503, 504].includes(error.status)
  return error instanceof TypeError || (error instanceof Error && 'code' in error)
}

/** For notifications: without links and control characters. */
export function messageOf(error: unknown): string {
  if (error instanceof ServiceError) return plainLine(error.message, 500)
  if (isLost(error)) return 'The service does not answer. The extension tries again.'
  return plainLine(error instanceof Error ? error.message : String(error), 500)
}
