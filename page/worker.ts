/** The service worker of the page: shows a message about a question, and opens the question. It stores and caches nothing. */

interface Extended {
  waitUntil(work: Promise<unknown>): void
}
interface WindowOfPage {
  readonly url: string
  focus(): Promise<unknown>
  postMessage(message: unknown): void
}
interface Worker {
  readonly registration: { showNotification(title: string, options: object): Promise<void> }
  readonly clients: {
    matchAll(options: object): Promise<WindowOfPage[]>
    openWindow(url: string): Promise<unknown>
  }
  addEventListener(
    type: 'push',
    listener: (event: Extended & { data: { json(): unknown } | null }) => void,
  ): void
  addEventListener(
    type: 'notificationclick',
    listener: (event: Extended & { notification: { data: unknown; close(): void } }) => void,
  ): void
}

const worker = globalThis as unknown as Worker

/** A text of a message, bounded. */
function textOf(value: unknown, name: string, maxChars: number): string {
  const text =
    typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined
  return typeof text === 'string' ? text.slice(0, maxChars) : ''
}

worker.addEventListener('push', (event) => {
  let data: unknown
  try {
    data = event.data?.json()
  } catch {
    data = undefined
  }
  const run = /^run-[0-9a-f]{20}$/.exec(textOf(data, 'runId', 100))?.[0]
  const link = /^#caisson-link_[\w-]+\.[\w-]+$/.exec(textOf(data, 'link', 4_000))?.[0]
  // A browser wants something shown for each message.
  const shown = worker.registration.showNotification(textOf(data, 'title', 100) || 'A run waits for you', {
    body: textOf(data, 'text', 200),
    tag: textOf(data, 'tag', 100),
    icon: '/page/icon.svg',
    data: { run, link },
  })
  event.waitUntil(shown)
})

worker.addEventListener('notificationclick', (event) => {
  const { notification } = event
  notification.close()
  const run = textOf(notification.data, 'run', 100)
  const link = textOf(notification.data, 'link', 4_000)
  const show = async () => {
    const windows = await worker.clients.matchAll({ type: 'window', includeUncontrolled: true })
    // One that is open has its token; a new one has not, and a link needs none.
    const page = windows.find(({ url }) => new URL(url).pathname === '/')
    if (page === undefined)
      return await worker.clients.openWindow(link === '' ? `/#/runs/${run}` : `/answer${link}`)
    page.postMessage({ run })
    return await page.focus()
  }
  event.waitUntil(show())
})
