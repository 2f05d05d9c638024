/** Sends the agent, or one sub-agent, a message while it works. */
import { useState } from 'preact/hooks'
import { Failure } from '../parts/parts.tsx'
import { visibleLine } from '../parts/text.ts'
import { actor, useSession } from '../session/session.ts'

export function Composer({ run, agents }: { readonly run: string; readonly agents: readonly string[] }) {
  const { client, fail } = useSession()
  const [text, setText] = useState('')
  const [to, setTo] = useState('root')
  const [error, setError] = useState<string>()
  const [said, setSaid] = useState('')
  const known = agents.includes(to) ? to : 'root'
  const send = async () => {
    const message = text.trim()
    if (message === '') return
    try {
      await client.call('sendMessage', {
        params: { run },
        body: { text: message, ...(known === 'root' ? {} : { to: known }), ...actor() },
      })
      setText('')
      setError(undefined)
      setSaid('The message is sent')
    } catch (thrown) {
      setError(fail(thrown))
    }
  }
  return (
    <form
      class="composer card"
      aria-label="Message to the agent"
      onSubmit={(event) => {
        event.preventDefault()
        void send()
      }}
    >
      {agents.length > 0 && (
        <label>
          <span class="visually-hidden">To</span>
          <select value={known} onChange={({ currentTarget }) => setTo(currentTarget.value)}>
            <option value="root">The agent</option>
            {agents.map((path) => (
              <option key={path} value={path}>
                {visibleLine(path.replace(/^root\//, ''), 60)}
              </option>
            ))}
          </select>
        </label>
      )}
      <label class="grow">
        <span class="visually-hidden">Message</span>
        <textarea
          rows={1}
          placeholder="Message the agent; it reads it on its next turn"
          value={text}
          onInput={({ currentTarget }) => setText(currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
            event.preventDefault()
            void send()
          }}
        />
      </label>
      <button type="submit">Send</button>
      <span class="visually-hidden" role="status">
        {said}
      </span>
      {error !== undefined && <Failure text={error} />}
    </form>
  )
}
