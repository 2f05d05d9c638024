/**
 * The offline step agent for web pages. A page that the egress policy refuses is asked for once; a long one is read on to
 * its end. What it says of a page are the page's own first lines: it cannot summarise, and says so.
 */
import type { Conversation, PastCall } from './conversation.ts'
import type { Intent } from './intents.ts'
import { call, describeDenial, quoteOutput, type Reply, say, sayNotDone } from './reply.ts'

type PageIntent = Extract<Intent, { kind: 'fetch-page' | 'summarise-page' | 'save-page' }>

/** One part of a page as `web_fetch` words it. */
interface Part {
  readonly url: string
  readonly status: number
  readonly title: string
  readonly text: string
  readonly totalChars: number
  /** Where to read on; null at the end. */
  readonly next: number | null
  /** Whether the page is longer than can be fetched. */
  readonly cut: boolean
}

const shownLines = 12
const shownLineMaxChars = 300

/** The next turn of a step about a page. */
export function actOnPage(intent: PageIntent, conversation: Conversation, reasoning: string): Reply {
  const parts: Part[] = []
  for (const [index, past] of conversation.calls.entries()) {
    const isLast = index === conversation.calls.length - 1
    if (past.name === 'web_fetch') {
      const part = past.errorCode === null ? readPart(past) : null
      if (part !== null) parts.push(part)
      else if (isLast) return afterRefusal(intent, past, conversation, reasoning)
    } else if (past.errorCode !== null) return sayNotDone(describeFailure(past), reasoning)
    else if (past.name === 'write_file') return say(describeSaved(intent, parts), reasoning)
  }
  const last = parts.at(-1)
  if (last !== undefined && last.status >= 400) {
    return sayNotDone(
      `${last.url} answered with status ${last.status}.\n${quoteOutput(last.text, 600)}`,
      reasoning,
    )
  }
  const wantsAll = intent.kind === 'save-page' && intent.what === 'page'
  if (last === undefined) return fetchFrom(intent, 0, conversation, reasoning)
  if (wantsAll && last.next !== null) return fetchFrom(intent, last.next, conversation, reasoning)
  if (intent.kind !== 'save-page') return say(describePage(intent, parts), reasoning)
  const content = wantsAll ? pageText(parts) : `${firstLines(parts)}\n`
  return call(conversation, 'write_file', { path: intent.path, content }, reasoning)
}

function fetchFrom(intent: PageIntent, offset: number, conversation: Conversation, reasoning: string): Reply {
  // What is saved as Markdown is to be read; anything else is wanted as it is.
  const isRaw =
    intent.kind === 'save-page' && intent.what === 'page' && !/\.(?:md|markdown|txt)$/i.test(intent.path)
  const values = { url: intent.url, ...(offset > 0 ? { offset } : {}), ...(isRaw ? { form: 'raw' } : {}) }
  return call(conversation, 'web_fetch', values, reasoning)
}

/** Asks for the address once, where a person may allow it; otherwise says what was said. */
function afterRefusal(
  intent: PageIntent,
  past: PastCall,
  conversation: Conversation,
  reasoning: string,
): Reply {
  const hasAsked = conversation.calls.some(({ name }) => name === 'request_access')
  if (past.errorCode !== 'denied' || hasAsked || !conversation.tools.has('request_access')) {
    return sayNotDone(describeFailure(past), reasoning)
  }
  const reason = 'The task says to fetch this page.'
  return call(
    conversation,
    'request_access',
    { url: intent.url, reason },
    `${reasoning} The policy refused it, so I ask.`,
  )
}

function describeFailure(past: PastCall): string {
  return past.errorCode === 'denied'
    ? describeDenial(past)
    : `${past.name}: ${quoteOutput(past.output, 1_500)}`
}

function describePage(intent: PageIntent, parts: readonly Part[]): string {
  const [first] = parts
  const title = first?.title === '' ? '' : ` It is titled ${JSON.stringify(first?.title)}.`
  const honest =
    intent.kind === 'summarise-page' ? ' I cannot summarise; these are its first lines:' : ' It begins:'
  return `Fetched ${first?.url} (${first?.totalChars} characters).${title}${honest}\n${firstLines(parts)}`
}

function describeSaved(intent: PageIntent, parts: readonly Part[]): string {
  const path = JSON.stringify(intent.kind === 'save-page' ? intent.path : '')
  const [first] = parts
  if (intent.kind === 'save-page' && intent.what === 'summary') {
    return `Wrote the first lines of ${first?.url} to ${path}. I cannot summarise, so it is no more than that.`
  }
  const note = parts.at(-1)?.cut
    ? ' The page is longer: what lies beyond could not be fetched and is not in the file.'
    : ''
  return `Saved ${first?.url} to ${path} (${pageText(parts).length} characters).${note}`
}

function pageText(parts: readonly Part[]): string {
  const title = parts[0]?.title ?? ''
  const text = parts.map((part) => part.text).join('')
  const head = title === '' || text.startsWith('# ') ? '' : `# ${title}\n\n`
  return `${head}${text}${text.endsWith('\n') ? '' : '\n'}`
}

function firstLines(parts: readonly Part[]): string {
  const lines = (parts[0]?.text ?? '').split('\n').filter((line) => line.trim() !== '')
  const shown = lines.slice(0, shownLines).map((line) => quoteLine(line))
  return shown.length === 0 ? '(no text)' : shown.join('\n')
}

function quoteLine(line: string): string {
  return line.length <= shownLineMaxChars ? line : `${line.slice(0, shownLineMaxChars).toWellFormed()} […]`
}

const answer =
  /^\[(\S+) · status (\d{3}) · (\S+|no type) · characters \d+ to \d+ of (\d+)([^\n]*)\]\n<web-content>\n([\s\S]*)\n<\/web-content>\s*$/

/** Null for an answer that is not worded so. */
function readPart({ output }: PastCall): Part | null {
  const [, url, status, type, total, rest = '', framed] = answer.exec(output) ?? []
  if (url === undefined || framed === undefined) return null
  const whole = framed.replaceAll(/<\\\/(?=web-content\b)/gi, '</')
  const titled = type === 'text/html' ? /^Title: (.*)\n\n/.exec(whole) : null
  const next = /read on with offset (\d+)/.exec(rest)?.[1]
  return {
    url,
    status: Number(status),
    title: titled?.[1] ?? '',
    text: whole.slice(titled?.[0].length ?? 0),
    totalChars: Number(total),
    next: next === undefined ? null : Number(next),
    cut: rest.includes('no more of it can be fetched'),
  }
}
