/** The page of a link: one question as it waits now, and its answer. The link is in the fragment, which no server sees. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import * as z from 'zod'
import { ServiceError, type ServiceReply } from '../client/index.ts'
import { Failure, useViewHeading } from './parts/parts.tsx'
import { fromResource } from './questions/question.ts'
import { QuestionCard } from './questions/question-card.tsx'
import { makeClient, messageOf, SessionContext } from './session/session.ts'

interface Link {
  readonly token: string
  readonly run: string
  readonly approval: string
}

type State =
  | { readonly is: 'loading' }
  | { readonly is: 'waiting'; readonly question: ServiceReply<'getApproval'> }
  | { readonly is: 'answered' }
  | { readonly is: 'over'; readonly why: string }
  | { readonly is: 'failed'; readonly why: string }

/** Undefined for a fragment that is no link. The service checks it. */
function readLink(hash: string): Link | undefined {
  const [, token, payload = ''] = /^#(caisson-link_([\w-]+)\.[\w-]+)$/.exec(hash) ?? []
  try {
    const bytes = Uint8Array.from(atob(payload.replaceAll('-', '+').replaceAll('_', '/')), (char) =>
      char.charCodeAt(0),
    )
    const [run, approval] = z
      .tuple([z.string(), z.string()])
      .rest(z.unknown())
      .parse(JSON.parse(new TextDecoder().decode(bytes)))
    return token === undefined ? undefined : { token, run, approval }
  } catch {
    return undefined
  }
}

export function AnswerPage() {
  const heading = useViewHeading('A question')
  const [hash, setHash] = useState(location.hash)
  const [state, setState] = useState<State>({ is: 'loading' })
  const [asked, setAsked] = useState(0)
  const link = useMemo(() => readLink(hash), [hash])
  const client = useMemo(() => makeClient(link?.token), [link])
  const fail = (error: unknown): string => {
    const why = messageOf(error)
    if (error instanceof ServiceError && error.status < 500 && error.status !== 429)
      setState({ is: 'over', why: error.status === 401 ? 'This link is not valid' : why })
    return why
  }
  useEffect(() => {
    const follow = () => setHash(location.hash)
    addEventListener('hashchange', follow)
    return () => removeEventListener('hashchange', follow)
  }, [])
  useEffect(() => {
    if (link === undefined) return setState({ is: 'over', why: 'This address has no link to a question' })
    const ending = new AbortController()
    setState({ is: 'loading' })
    const params = { run: link.run, approval: link.approval }
    client.call('getApproval', { params, signal: ending.signal }).then(
      (question) => setState({ is: 'waiting', question }),
      (error: unknown) => {
        if (ending.signal.aborted) return
        setState({ is: 'failed', why: messageOf(error) })
        fail(error)
      },
    )
    return () => ending.abort()
  }, [client, asked])
  return (
    <SessionContext.Provider value={{ client, fail }}>
      <header class="topbar">
        <span class="brand">
          <img src="/page/icon.svg" alt="" width="24" height="24" />
          <span>Caisson</span>
        </span>
      </header>
      <main id="main" class="narrow stack">
        <h1 ref={heading} tabIndex={-1}>
          A question
        </h1>
        {state.is === 'loading' && <p role="status">Reading the question…</p>}
        {state.is === 'waiting' && (
          <>
            <h2>A run waits for your answer</h2>
            <p>This link is good for one answer, and the first that anyone gives counts.</p>
            <QuestionCard
              question={fromResource(state.question)}
              isOnce
              onAnswered={() => setState({ is: 'answered' })}
            />
          </>
        )}
        {state.is === 'answered' && <p role="status">Your answer counts. You can close this page.</p>}
        {state.is === 'over' && <Failure text={state.why} />}
        {state.is === 'failed' && (
          <>
            <Failure text={state.why} />
            <button type="button" onClick={() => setAsked((count) => count + 1)}>
              Try again
            </button>
          </>
        )}
      </main>
    </SessionContext.Provider>
  )
}
