/** Where the page keeps the token, and how it calls the service it came from. */
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { ServiceClient, ServiceError } from '../../client/index.ts'
import { parseSignIn } from './route.ts'

const storageKey = 'caisson-token'
const nameKey = 'caisson-name'

/**
 * Takes a token from the fragment of the address, which no server sees, and removes it from there. Where the address names
 * a run, its view is left in its place.
 * @returns the token; undefined where the address has none
 */
export function takeTokenFromAddress(): string | undefined {
  const given = parseSignIn(location.hash)
  if (given === undefined) return undefined
  storeToken(given.token)
  history.replaceState(null, '', `${location.pathname}${given.next}`)
  return given.token
}

export function storedToken(): string | undefined {
  return sessionStorage.getItem(storageKey) ?? undefined
}

export function storeToken(token: string): void {
  sessionStorage.setItem(storageKey, token)
}

export function forgetToken(): void {
  sessionStorage.removeItem(storageKey)
}

/** Name of the person for journals, as they gave it. */
export function storedName(): string | undefined {
  const name = localStorage.getItem(nameKey)?.trim()
  return name === undefined || name === '' ? undefined : name.slice(0, 100)
}

export function storeName(name: string): void {
  localStorage.setItem(nameKey, name)
}

/** `by` of a request; empty where the person gave no name. */
export function actor(): { by?: string } {
  const by = storedName()
  return by === undefined ? {} : { by }
}

export function makeClient(token: string | undefined): ServiceClient {
  return new ServiceClient({ baseUrl: location.origin, ...(token === undefined ? {} : { token }) })
}

export interface Session {
  readonly client: ServiceClient
  /** Shows a failure; one that needs a token again leads to the sign-in. */
  readonly fail: (error: unknown) => string
}

export const SessionContext = createContext<Session | null>(null)

export function useSession(): Session {
  const session = useContext(SessionContext)
  if (session === null) throw new Error('a view needs a session')
  return session
}

export function isUnauthorized(error: unknown): error is ServiceError {
  return error instanceof ServiceError && error.status === 401
}

export function messageOf(error: unknown): string {
  if (error instanceof ServiceError) return error.message
  if (error instanceof TypeError) return 'The service cannot be reached'
  return error instanceof Error ? error.message : String(error)
}

/** A key for a request that is repeated. */
export function newKey(): string {
  const random = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('')
}
