/** Tells the desktop of the person at the terminal that a question waits, where the configuration says so. */
import type { Host } from '../host.ts'
import { showOnDesktop } from '../notify/desktop.ts'
import { defaultAfterMs } from '../notify/messenger.ts'

/** Called when a question is put. It shows on the desktop unless the result is disposed within `notify.afterMs`. */
export type TellLater = (text: string) => Disposable

/** @param say gets why no question could be shown. @returns undefined: the configuration names no desktop */
export async function openDesktopNotices(
  host: Host,
  say: (line: string) => void,
): Promise<TellLater | undefined> {
  const { desktop = false, afterMs = defaultAfterMs } = (await host.config()).notify
  if (!desktop) return undefined
  return (text) => {
    const ending = new AbortController()
    const { signal } = ending
    const timer = setTimeout(async () => {
      const result = await showOnDesktop({ title: 'Caisson waits for your answer', text }, { signal })
      if (!result.isSent && !signal.aborted) say(`The desktop was not told: ${result.why}`)
    }, afterMs)
    return {
      [Symbol.dispose]: () => {
        clearTimeout(timer)
        ending.abort()
      },
    }
  }
}
