/** Orders about web pages: fetch, summarise, save. An address is only taken for one where it is whole, with its scheme. */
import type { Intent } from './intents.ts'
import { type Clause, isQuoted, quotedPattern, readToken } from './phrases.ts'
import { groupsOf, looksLikeFile } from './rule-groups.ts'
import { target } from './rule-pieces.ts'
import type { Scene } from './understand-csv.ts'

type PageIntent = Extract<Intent, { kind: 'fetch-page' | 'summarise-page' | 'save-page' }>

const plain = '(?<url>https?://[^\\s"\'<>\uE000\uE001]+)'
const address = `(?<url>https?://[^\\s"'<>\uE000\uE001]+|${quotedPattern})`
const noun = '(?:(?:web\\s*)?(?:page|site|website|address|url|link|article|document|file))'
const thing = `(?:(?:the|this)\\s+)?(?:(?:contents?|text|source)\\s+(?:of|at|from|on)\\s+)?(?:(?:the|this)\\s+)?(?:${noun}\\s+)?(?:(?:at|on|from|of)\\s+)?`
const into = `\\s+(?:to|into|as|in|under)\\s+${target('path')}`
const whole = (pattern: string): RegExp => new RegExp(`^(?:${pattern})$`, 'is')

const saves = whole(`(?:fetch|get|download|save|store|retrieve|write|put)\\s+${thing}${plain}${into}`)
const summaries = whole(
  `(?:(?:summari[sz]e|sum\\s+up|describe)\\s+${thing}|write\\s+(?:a\\s+)?summary\\s+of\\s+${thing})${address}(?:${into})?`,
)
const about = whole(`what(?:'s|\\s+is)\\s+${thing}${address}\\s+about`)
const fetches = whole(
  `(?:(?:fetch|get|download|load|open|read|show|visit|retrieve|print|display|browse(?:\\s+to)?|look\\s+at|go\\s+to)\\s+(?:me\\s+)?${thing}${address}|what(?:'s|\\s+is)\\s+(?:on|at|in)\\s+${thing}${address.replace('url', 'url2')}|what\\s+does\\s+${thing}${address.replace('url', 'url3')}\\s+say)`,
)

/** Null for an order about anything but pages. */
export function readPageOrder(clause: Clause, scene: Scene): PageIntent | null {
  const { text } = clause
  const saved = saves.exec(text)
  if (saved !== null) return toSave(saved, 'page', clause, scene)
  const summary = summaries.exec(text)
  if (summary?.groups?.path !== undefined) return toSave(summary, 'summary', clause, scene)
  const summarised = readAddress(summary?.groups?.url ?? about.exec(text)?.groups?.url, clause)
  if (summarised !== null) return { kind: 'summarise-page', url: summarised }
  const { url, url2, url3 } = fetches.exec(text)?.groups ?? {}
  const fetched = readAddress(url ?? url2 ?? url3, clause)
  return fetched === null ? null : { kind: 'fetch-page', url: fetched }
}

const itSaved = whole(
  `(?:save|store|write|put)\\s+(?:it|that|this|the\\s+(?:page|text|contents?|results?|summary))${into}`,
)
const itSummarised = whole(
  '(?:summari[sz]e|sum\\s+up|describe)\\s+(?:it|that|this|the\\s+(?:page|text|contents?))',
)

/** An order about the page of the order before: `and save it to page.md`. Null where it is none. */
export function completePage(previous: Intent | undefined, clause: Clause, scene: Scene): PageIntent | null {
  if (previous?.kind !== 'fetch-page' && previous?.kind !== 'summarise-page') return null
  const { url } = previous
  if (itSummarised.test(clause.text)) return { kind: 'summarise-page', url }
  const match = itSaved.exec(clause.text)
  if (match === null) return null
  const path = groupsOf(match, clause, scene).path('path')
  const what = previous.kind === 'summarise-page' ? 'summary' : 'page'
  return looksLikeFile(path, match.groups?.path) ? { kind: 'save-page', url, path, what } : null
}

function toSave(
  match: RegExpExecArray,
  what: 'page' | 'summary',
  clause: Clause,
  scene: Scene,
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
