/** Takes the token of the service, an API key or a JWT. */
import { useState } from 'preact/hooks'
import { Failure, useViewHeading } from './parts/parts.tsx'

export function SignIn({
  onToken,
  why,
}: {
  readonly onToken: (token: string) => void
  readonly why: string | undefined
}) {
  const heading = useViewHeading('Sign in')
  const [token, setToken] = useState('')
  return (
    <main id="main" class="narrow">
      <h1 ref={heading} tabIndex={-1}>
        Sign in
      </h1>
      <p>
        In a terminal, <code>caisson serve</code> prints an address that signs you in. Or paste the token
        here: it is in the file that the command names. An API key works too.
      </p>
      <form
        class="card stack"
        onSubmit={(event) => {
          event.preventDefault()
          if (token.trim() !== '') onToken(token.trim())
        }}
      >
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={token}
            onInput={({ currentTarget: { value } }) => setToken(value)}
          />
        </label>
        {why !== undefined && <Failure text={why} />}
        <button type="submit" class="primary">
          Sign in
        </button>
        <p class="hint">This tab keeps the token until you close it or sign out.</p>
      </form>
    </main>
  )
}
