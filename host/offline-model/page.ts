/**
 * Orders about web pages: how a task words them, and the turns of a step. When the egress policy denies a page, access is
 * requested once. A long page is fetched to its end. A summary is the first lines of the page, and the answer says so.
 */
import type { PastCall, PastConversation } from './conversation.ts'
import type { UserIntent } from './intents.ts'
import { type Clause, isQuoted, quotedPattern, readToken } from './phrases.ts'
import { call, describeDenial, type OfflineReply, quoteOutput, say, sayNotDone } from './reply.ts'
import { groupsOf, looksLikeFile, target } from './rule-groups.ts'
import type { CsvContext } from './understand-csv.ts'

type PageIntent = Extract<UserIntent, { kind: 'fetch-page' | 'summarize-page' | 'save-page' }>

const plain = '(?<url>https?://[^\\s"\'<>\uE000\uE001]+)'
const address = `(?<url>https?://[^\\s"'<>\uE000\uE001]+|${quotedPattern})`
const noun = '(web ?)?(page|site|website|address|url|link|article|document|file)'
const thing = `((the|this) )?((contents?|text|source) (of|at|from|on) )?((the|this) )?(${noun} )?((at|on|from|of) )?`
const into = ` (to|into|as|in|under) ${target('path')}`
const whole = (pattern: string): RegExp => new RegExp(`^(${pattern})$`, 'is')

const saves = whole(`(fetch|get|download|save|store|retrieve|write|put) ${thing}${plain}${into}`)
const summaries = whole(
  `((summari[sz]e|sum up|describe) ${thing}|write (a )?summary of ${thing})${address}(${into})?`,
)
const about = whole(`what('s| is) ${thing}${address} about`)
const fetches = whole(
  `((fetch|get|download|load|open|read|show|visit|retrieve|print|display|browse( to)?|look at|go to) (me )?${thing}${address}|what('s| is) (on|at|in) ${thing}${address}|what does ${thing}${address} say)`,
)

/** Null for an order about anything but pages. */
export function readPageOrder(clause: Clause, scene: CsvContext): PageIntent | null {
  const { text } = clause
  const saved = saves.exec(text)
  if (saved !== null) return toSave(saved, 'page', clause, scene)
  const summary = summaries.exec(text)
  if (summary?.groups?.path !== undefined) return toSave(summary, 'summary', clause, scene)
  const summarized = readAddress(summary?.groups?.url ?? about.exec(text)?.groups?.url, clause)
  if (summarized !== null) return { kind: 'summarize-page', url: summarized }
  const fetched = readAddress(fetches.exec(text)?.groups?.url, clause)
  return fetched === null ? null : { kind: 'fetch-page', url: fetched }
}

const itSaved = whole(
  `(save|store|write|put) (it|that|this|the (page|text|contents?|results?|summary))${into}`,
)
const itSummarized = whole('(summari[sz]e|sum up|describe) (it|that|this|the (page|text|contents?))')

/** An order about the page of the previous order, such as `and save it to page.md`; else null. */
export function completePage(
  previous: UserIntent | undefined,
  clause: Clause,
  scene: CsvContext,
): PageIntent | null {
  if (previous?.kind !== 'fetch-page' && previous?.kind !== 'summarize-page') return null
  const { url } = previous
  if (itSummarized.test(clause.text)) return { kind: 'summarize-page', url }
  const match = itSaved.exec(clause.text)
  if (match === null) return null
  const path = groupsOf(match, clause, scene).path('path')
  const what = previous.kind === 'summarize-page' ? 'summary' : 'page'
  return looksLikeFile(path, match.groups?.path) ? { kind: 'save-page', url, path, what } : null
}

function toSave(
  match: RegExpExecArray,
  what: 'page' | 'summary',
  clause: Clause,
  scene: CsvContext,
): PageIntent | null {
  const url = readAddress(match.groups?.url, clause)
  const path = groupsOf(match, clause, scene).path('path')
  return url !== null && looksLikeFile(path, match.groups?.path)
    ? { kind: 'save-page', url, path, what }
    : null
}

function readAddress(token: string | undefined, clause: Clause): string | null {
  if (token === undefined) return null
  const text = readToken(token, clause.quoted)
  if (isQuoted(token) && /\s/.test(text)) return null
  return /^https?:\/\/./i.test(text) && URL.canParse(text) ? text : null
}

/** One part of a page in the format of `web_fetch`. */
interface Part {
  readonly url: string
  readonly status: number
  readonly title: string
  readonly text: string
  readonly totalChars: number
  /** Offset of the next part; null at the end. */
  readonly next: number | null
  /** Whether the page is longer than can be fetched. */
  readonly cut: boolean
}

const shownLines = 12
const shownLineMaxChars = 300

/** The next turn of a step about a page. */
export function actOnPage(
  intent: PageIntent,
  conversation: PastConversation,
  reasoning: string,
): OfflineReply {
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

function fetchFrom(
  intent: PageIntent,
  offset: number,
  conversation: PastConversation,
  reasoning: string,
): OfflineReply {
  // Markdown and text are converted; any other file gets the original bytes.
  const isRaw =
    intent.kind === 'save-page' && intent.what === 'page' && !/\.(?:md|markdown|txt)$/i.test(intent.path)
  const args = { url: intent.url, ...(offset > 0 ? { offset } : {}), ...(isRaw ? { form: 'raw' } : {}) }
  return call(conversation, 'web_fetch', args, reasoning)
}

/** Requests access to the address once, where the user can allow it; else reports the denial. */
function afterRefusal(
  intent: PageIntent,
  past: PastCall,
  conversation: PastConversation,
  reasoning: string,
): OfflineReply {
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
    intent.kind === 'summarize-page' ? ' I cannot summarize; these are its first lines:' : ' It begins:'
  return `Fetched ${first?.url} (${first?.totalChars} characters).${title}${honest}\n${firstLines(parts)}`
}

function describeSaved(intent: PageIntent, parts: readonly Part[]): string {
  const path = JSON.stringify(intent.kind === 'save-page' ? intent.path : '')
  const [first] = parts
  if (intent.kind === 'save-page' && intent.what === 'summary') {
    return `Wrote the first lines of ${first?.url} to ${path}. I cannot summarize, so it is no more than that.`
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

/** Null for output in another format. */
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
