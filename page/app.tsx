/** The frame around all views: who is signed in, where one is, and what waits for an answer. */
import { useCallback, useEffect, useLayoutEffect, useMemo, useState } from 'preact/hooks'
import { RunPage } from './run/run-page.tsx'
import { NewRun } from './runs/new-run.tsx'
import { RunsPage } from './runs/runs-page.tsx'
import { useRoute } from './session/route.ts'
import {
  forgetToken,
  isUnauthorized,
  makeClient,
  messageOf,
  SessionContext,
  storedToken,
  storeToken,
  takeTokenFromAddress,
} from './session/session.ts'
import { applyTheme, storedTheme, themes } from './session/theme.ts'
import { SignIn } from './sign-in.tsx'

type Access = 'unknown' | 'granted' | 'refused' | 'unreachable'

export function App() {
  const [token, setToken] = useState(storedToken)
  const [access, setAccess] = useState<Access>('unknown')
  const [why, setWhy] = useState<string>()
  const client = useMemo(() => makeClient(token), [token])
  const fail = useCallback((error: unknown) => {
    if (isUnauthorized(error)) setAccess('refused')
    return messageOf(error)
  }, [])
  const session = useMemo(() => ({ client, fail }), [client, fail])
  const check = useCallback(async () => {
    try {
      await client.call('listRuns', { query: { limit: 1 } })
      setAccess('granted')
    } catch (error) {
      setAccess(isUnauthorized(error) ? 'refused' : 'unreachable')
      setWhy(token === undefined && isUnauthorized(error) ? undefined : whyOf(error))
    }
  }, [client, token])
  useEffect(() => {
    void check()
  }, [check])
  useEffect(() => {
    if (access !== 'unreachable') return
    const timer = setInterval(() => void check(), 2_000)
    return () => clearInterval(timer)
  }, [access, check])
  const signIn = (given: string) => {
    storeToken(given)
    setAccess('unknown')
    setToken(given)
    // The same token again: nothing changes, so it is tried by hand.
    if (given === token) void check()
  }
  useLayoutEffect(() => {
    // An address with a token that is pasted into this tab loads no page.
    const take = () => {
      const given = takeTokenFromAddress()
      if (given === undefined) return
      signIn(given)
      // The view that the address names now.
      dispatchEvent(new HashChangeEvent('hashchange'))
    }
    addEventListener('hashchange', take)
    return () => removeEventListener('hashchange', take)
  }, [token])
  const signOut = () => {
    forgetToken()
    setToken(undefined)
    setWhy(undefined)
    setAccess('unknown')
  }
  return (
    <SessionContext.Provider value={session}>
      <TopBar onSignOut={token === undefined || access === 'refused' ? undefined : signOut} />
      {access === 'granted' && <Views />}
      {access === 'refused' && <SignIn onToken={signIn} why={why} />}
      {(access === 'unknown' || access === 'unreachable') && (
        <main id="main" class="narrow">
          <h1>Caisson</h1>
          <p role="status">
            {access === 'unknown'
              ? 'Connecting to the service…'
              : `${why ?? 'The service cannot be reached'}. Trying again…`}
          </p>
        </main>
      )}
    </SessionContext.Provider>
  )
}

/** What to do about a refused token is on the page; the remedy of the service is for programs. */
function whyOf(error: unknown): string {
  return isUnauthorized(error)
    ? `The service does not accept this token: ${error.problem.detail}`
    : messageOf(error)
}

/** A link could not: the fragment of the address names the view. */
function skipToMain(): void {
  const main = document.getElementById('main')
  main?.setAttribute('tabindex', '-1')
  main?.focus()
}

function Views() {
  const route = useRoute()
  if (route.view === 'new') return <NewRun />
  if (route.view === 'run') return <RunPage key={route.run} run={route.run} tab={route.tab} />
  return <RunsPage />
}

function TopBar({ onSignOut }: { readonly onSignOut: (() => void) | undefined }) {
  const [theme, setTheme] = useState(storedTheme)
  const next = themes[(themes.indexOf(theme) + 1) % themes.length] ?? 'system'
  return (
    <header class="topbar">
      <button type="button" class="skip" onClick={skipToMain}>
        Skip to content
      </button>
      <a class="brand" href="#/" aria-label="Caisson, all runs">
        <img src="/page/icon.svg" alt="" width="24" height="24" />
        <span>Caisson</span>
      </a>
      <nav aria-label="Main">
        <a href="#/">Runs</a>
        <a href="#/new">New run</a>
      </nav>
      <div class="topbar-end">
        <button
          type="button"
          class="plain"
          onClick={() => {
            applyTheme(next)
            setTheme(next)
          }}
        >
          Theme: {theme}
        </button>
        {onSignOut !== undefined && (
          <button type="button" class="plain" onClick={onSignOut}>
            Sign out
          </button>
        )}
      </div>
    </header>
  )
}
