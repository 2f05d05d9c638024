/** What left the VM, and what was refused. */
import { bytes, clock, duration, visible } from '../parts/text.ts'
import type { RunHistory } from './history.ts'

/** Rows that are drawn; the newest. */
const shownMax = 500

export function NetworkView({ history, until }: { readonly history: RunHistory; readonly until?: number }) {
  const limit = until ?? Number.POSITIVE_INFINITY
  const entries = history.network.filter(({ seq }) => seq <= limit)
  if (entries.length === 0)
    return (
      <p class="empty card">
        Nothing left the VM. It has no network card; each connection passes the host's rules and is listed
        here.
      </p>
    )
  const shown = entries.slice(-shownMax)
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table scrolls, also by the keyboard.
    <section class="card scroll-x" aria-label="Connections" tabIndex={0}>
      {shown.length < entries.length && (
        <p class="hint pad">
          The newest {shownMax} of {entries.length}
        </p>
      )}
      <table class="network">
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Result</th>
            <th scope="col">Address</th>
            <th scope="col">Rule or reason</th>
            <th scope="col">Out</th>
            <th scope="col">In</th>
            <th scope="col">Took</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ seq, at, event }) => (
            <tr key={seq}>
              <td>{clock(at)}</td>
              {event.type === 'egress-denied' ? (
                <>
                  <td class="minus">refused</td>
                  <td>
                    <code>{visible(event.target)}</code>
                  </td>
                  <td>{visible(event.reason)}</td>
                  <td />
                  <td />
                  <td />
                </>
              ) : (
                <>
                  <td class={event.error === undefined ? 'plus' : 'minus'}>
                    {event.error === undefined ? 'reached' : visible(event.error)}
                  </td>
                  <td>
                    <code>{visible(event.target)}</code>
                  </td>
                  <td>{visible(event.rule)}</td>
                  <td class="number">{bytes(event.bytesOut)}</td>
                  <td class="number">{bytes(event.bytesIn)}</td>
                  <td class="number">{duration(event.durationMs)}</td>
                </>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}
