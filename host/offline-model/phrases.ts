/**
 * Splits a task in English into clauses. Quoted text, backticks and code fences are set aside first, so that their content is
 * never read as an order; then courtesies are removed, and the rest is split where an order ends.
 */

/** Marks from Unicode's private use area replace text that was set aside; they are removed from the task first. */
const open = '\uE000'
const close = '\uE001'

/** A clause and the texts that were set aside in it. */
export interface Clause {
  readonly text: string
  /** The text as the user wrote it, for messages. */
  readonly original: string
  readonly quoted: readonly string[]
  /** The same with the quotes around them. */
  readonly written: readonly string[]
}

/** Matches one text that was set aside. */
export const quotedPattern = `${open}\\d+${close}`

/** Cuts `text` into clauses. */
export function splitClauses(text: string): Clause[] {
  const quoted: string[] = []
  const originals: string[] = []
  const restore = (part: string): string =>
    part.replaceAll(new RegExp(quotedPattern, 'g'), (mark) => originals[markIndex(mark)] ?? '')
  const keep = (value: string, original: string): string => {
    // Quotes may hold backticks that were set aside before them.
    quoted.push(restore(value))
    originals.push(restore(original))
    return `${open}${quoted.length - 1}${close}`
  }
  const plain = setArgumentsAside(text.replaceAll(/[\uE000\uE001]/g, ''), keep)
  const flat = setCodeAside(setCommandsAside(setAside(plain, keep), keep), keep)
  return cutAtEnds(flat)
    .map((part) => ({ part, plain: trimCourtesy(part) }))
    .filter(({ plain }) => /[\p{L}\p{N}\uE000]/u.test(plain))
    .map(({ part, plain }) => ({ text: plain, original: restore(part.trim()), quoted, written: originals }))
}

/** The text behind a mark, or the token itself without the punctuation that ends a sentence. */
export function readToken(token: string, quoted: readonly string[]): string {
  const whole = new RegExp(`^${quotedPattern}$`).exec(token)
  if (whole !== null) return quoted[markIndex(token)] ?? ''
  return token
    .replaceAll(new RegExp(quotedPattern, 'g'), (mark) => quoted[markIndex(mark)] ?? '')
    .replace(/[.,;:!?]+$/, '')
}

/** Whether a token is text that was set aside, and nothing else. */
export function isQuoted(token: string): boolean {
  return new RegExp(`^${quotedPattern}$`).test(token)
}

function markIndex(mark: string): number {
  return Number(mark.slice(1, -1))
}

function setAside(text: string, keep: (value: string, original: string) => string): string {
  const fence = /```[^\n`]*\n([\s\S]*?)```/g
  const tick = /`([^`\n]+)`/g
  const pairs = [
    // A backslash before a quote keeps it inside.
    /"((?:\\"|[^"])*)"/g,
    /“([^”]*)”/g,
    /«([^»]*)»/g,
    /(?<![\p{L}\p{N}])'([^'\n]*(?:'(?=\p{L})[^'\n]*)*)'(?!\p{L})/gu,
  ]
  let flat = text.replaceAll(fence, (original, value: string) => keep(value, original))
  for (const pattern of [tick, ...pairs]) {
    flat = flat.replaceAll(pattern, (original, value: string) =>
      // A quote around a mark, as in "`x`", is the mark.
      new RegExp(`^${quotedPattern}$`).test(value) ? value : keep(value.replaceAll('\\"', '"'), original),
    )
  }
  return flat
}

/** `Run the command: …`. */
const commandLine =
  /\b((?:run|execute)(?:\s+(?:the\s+|this\s+)?(?:(?:shell|bash)\s+)?(?:command|cmd))?\s*:[ \t]*\n?[ \t]*)([^\n]+)/gi
/** A quoted command; other orders may follow it. */
const quotedCommand = new RegExp(`^${quotedPattern}\\s*(?:$|[.,;!?]|(?:and|then)\\b)`, 'i')

/** After the colon of `run the command:` the rest of the line is the command, punctuation included. */
function setCommandsAside(flat: string, keep: (value: string, original: string) => string): string {
  return flat.replaceAll(commandLine, (all, lead: string, rest: string) => {
    if (quotedCommand.test(rest)) return all
    const command = rest.trim().replace(/(?<=[\p{L}\p{N})\uE001])\.$/u, '')
    return lead + keep(command, command)
  })
}

/** `Apply this patch: …`, `Run this Python code: …`. */
const codeLead =
  /\b((?:apply\s+(?:this|the|my)\s+(?:patch|diff)|(?:run|execute)\s+(?:this|the|my)\s+(?:python|javascript|js)(?:\s+(?:code|program))?)\s*:[ \t]*\n?)(?=[^\s\uE000])([\s\S]+)$/i

/** After such words and a colon, the rest of the task is the patch or the code. */
function setCodeAside(flat: string, keep: (value: string, original: string) => string): string {
  return flat.replace(codeLead, (_, lead: string, code: string) => lead + keep(code, code))
}

const argumentsLead =
  /\b(?:call|use|get|revise|change)\b[^\n{}]{1,600}?(?:\bwith\b[^\n{}]{0,20}|:)\s*(?=\{)/gi
/** Objects that are set aside in one task. */
const objectsMax = 20
/** Closing braces that are tried as the end of an object. */
const bracesMax = 100

/** The JSON object of `call NAME with {…}`, whose quotes and commas belong to no order. */
function setArgumentsAside(text: string, keep: (value: string, original: string) => string): string {
  let flat = ''
  let from = 0
  for (const lead of [...text.matchAll(argumentsLead)].slice(0, objectsMax)) {
    const start = lead.index + lead[0].length
    const end = start < from ? null : objectEnd(text, start)
    if (end === null) continue
    const json = text.slice(start, end)
    flat += text.slice(from, start) + keep(json, json)
    from = end
  }
  return flat + text.slice(from)
}

function objectEnd(text: string, start: number): number | null {
  let end = start
  for (let tried = 0; tried < bracesMax; tried++) {
    end = text.indexOf('}', end) + 1
    if (end === 0) return null
    try {
      JSON.parse(text.slice(start, end))
      return end
    } catch {}
  }
  return null
}

const verbs =
  'add|analy[sz]e|append|ask|calculate|change|compute|copy|count|create|delete|display|draw|erase|evaluate|execute|explain|explore|' +
  'download|fetch|find|generate|give|grep|insert|list|look|make|move|open|plot|print|put|read|remove|rename|replace|report|run|save|search|' +
  'show|store|substitute|sum|summari[sz]e|tell|write|describe|visuali[sz]e|profile|produce|include'
/** Splits before words about sub-agents that follow an order: after a comma, a quote or the name of a file. */
const subAgentBoundary =
  '(?:\\s*,\\s*(?:and\\s+)?|\\s+and\\s+)(?=(?:a|another|one)\\s+sub-?agent\\s+(?:to|for)\\b)|' +
  '(?:\\s*,\\s*|(?<=\\uE001|\\w\\.\\w{1,8})\\s+)(?=(?:use|using|with|by|each|in\\s+parallel)\\b[^.;,\\n\\uE000]{0,40}\\bsub-?agents?\\b)'

const boundary = new RegExp(
  [
    // After a colon at the end of a line the next line belongs to it.
    '(?<!:[ \\t]*)\\n+(?:\\s*(?:[-*]|\\d+[.)])\\s+)?',
    '(?<!(?:^|\\n)\\s*\\d{1,2})[.!?]+(?=\\s|$)\\s*',
    ';\\s*',
    '\\s*,?\\s*\\b(?:and|but)?\\s*(?:then|after that|afterwards|next|finally)\\b,?\\s+(?=[\\p{L}])',
    `\\s*,?\\s*\\band\\s+(?:also\\s+)?(?=(?:${verbs})\\b)`,
    `\\s*,\\s*(?=(?:${verbs})\\b)`,
    subAgentBoundary,
  ].join('|'),
  'giu',
)

function cutAtEnds(text: string): string[] {
  const parts: string[] = []
  for (const part of text.split(boundary)) {
    // "In a.txt, replace …" is one order despite the comma before a verb.
    const before = parts.at(-1)
    if (before !== undefined && /^\s*(?:in|inside)\s+\S+(?:\s+\S+)?\s*$/i.test(before))
      parts[parts.length - 1] = `${before}, ${part}`
    else parts.push(part)
  }
  return parts
}

const opening = new RegExp(
  '^(?:please|kindly|hi|hello|hey|ok|okay|so|now|first|firstly|second|secondly|then|next|also|finally|lastly|and|' +
    "could you|can you|would you|will you|i want you to|i would like you to|i'd like you to|i want to|i need you to|" +
    "you should|let's|let us|go ahead and|help me|help me to|\\d+[.)]|[-*])(?:\\s+|,\\s*|(?=$))",
  'i',
)

function trimCourtesy(text: string): string {
  let rest = text.trim().replaceAll(/\s+/g, ' ')
  for (let last = ''; last !== rest; ) {
    last = rest
    rest = rest.replace(opening, '')
  }
  return rest
    .replace(/(?:,?\s*(?:please|for me|thanks|thank you|if you can|right now|now))+$/i, '')
    .replace(/[\s.!?,:]+$/, '')
}
