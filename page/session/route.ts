/** The address of a view: in the fragment, so that no server sees which run is looked at. */
import { useLayoutEffect, useState } from 'preact/hooks'

export type RunTab = 'activity' | 'changes' | 'network' | 'details'
export const runTabs = ['activity', 'changes', 'network', 'details'] as const satisfies readonly RunTab[]

export type PageRoute =
  | { readonly view: 'runs' }
  | { readonly view: 'new' }
  | { readonly view: 'run'; readonly run: string; readonly tab: RunTab }

export function parseRoute(hash: string): PageRoute {
  if (hash === '#/new') return { view: 'new' }
  const [, run = '', tab = ''] = /^#\/runs\/(run-[0-9a-f]{20})(?:\/([a-z]+))?$/.exec(hash) ?? []
  if (run === '') return { view: 'runs' }
  return { view: 'run', run, tab: runTabs.find((name) => name === tab) ?? 'activity' }
}

export function runAddress(run: string, tab: RunTab = 'activity'): string {
  return `#/runs/${run}${tab === 'activity' ? '' : `/${tab}`}`
}

/** A fragment that signs in, such as `#token=TOKEN&run=RUN`; undefined for any other. @returns the view that follows it */
export function parseSignIn(hash: string): { readonly token: string; readonly next: string } | undefined {
  const [, token, run] = /^#token=([\w.-]+)(?:&run=(run-[0-9a-f]{20}))?$/.exec(hash) ?? []
  if (token === undefined) return undefined
  return { token, next: run === undefined ? '#/' : runAddress(run) }
}

export function useRoute(): PageRoute {
  const [hash, setHash] = useState(location.hash)
  // An effect after the next frame would miss an address that changes before it.
  useLayoutEffect(() => {
    const follow = () => setHash(location.hash)
    addEventListener('hashchange', follow)
    return () => removeEventListener('hashchange', follow)
  }, [])
  return parseRoute(hash)
}
