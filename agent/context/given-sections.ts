/**
 * Sections that the application and hooks give: each within its budget of tokens, in a block that names who gave it. Their
 * text cannot take the form of another part of the prompt.
 */
import { block, oneLine } from '#specs/node/prompt-block.ts'
import {
  type GivenTurnSection,
  type RunSection,
  type SectionPlace,
  type ShownSection,
  sectionDefaultTokens,
} from '#specs/protocol/context-section.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { estimateTokens } from './tokens.ts'

interface Given {
  readonly name: string
  readonly from: string
  readonly text: string
  readonly maxTokens: number
}

/** A section of the prompt that renders what was given, whatever else the prompt has. */
interface GivenPart {
  readonly name: string
  readonly part: 'run'
  readonly pinned: false
  render(input: unknown, maxChars: number): string
  describe(input: unknown, maxChars: number): ShownSection
}

/** Tags of the blocks in a prompt. */
const tags =
  'task|context|workspace|guidance|skills|memory|note|schema|plan|result|instructions|message|summary|record|answer|output|web-content|server-content|former'
const tag = new RegExp(`<(?=\\s*/?\\s*(?:${tags})\\b)`, 'gi')
/** Headings of the sections of a prompt. */
const heading =
  /^(?=[^\S\n]{0,3}#{1,6}[^\S\n]+(?:Task|Context|Workspace|AGENTS\.md|Skills|Memory|Final answer|Plan|Results of|State of|This step|Messages from|Earlier in|What is left|Record|Tools of)\b)/gim

/** Text in which no line is a heading, and nothing a tag, of the prompt's own form: a backslash stands in each. */
export function inert(text: string): string {
  return text
    .replaceAll(/\r\n?|[\u2028\u2029\u0085\v\f]/g, '\n')
    .replaceAll(tag, '<\\')
    .replaceAll(heading, '\\')
}

/** A value in a tag, which it cannot end. */
export function attribute(text: string): string {
  return JSON.stringify(oneLine(text).replaceAll(/[<>\p{Cc}]/gu, ' '))
}

/** The sections of a task at a place, as sections of the prompt. */
export function sectionsAt(place: SectionPlace, given: readonly RunSection[] = []): GivenPart[] {
  return given
    .filter((section) => section.place === place)
    .map((section) => ({
      name: `given ${section.name}`,
      part: 'run',
      pinned: false,
      render: (_, maxChars) => `# Context\n${renderOne(section, maxChars).text}`,
      describe: (_, maxChars) => renderOne(section, maxChars).shown,
    }))
}

/** Sections for one request, as the end of a message, and what of them is shown. */
export function renderTurnSections(given: readonly GivenTurnSection[]): {
  readonly text: string
  readonly shown: readonly ShownSection[]
} {
  const all = given.map(({ maxTokens = sectionDefaultTokens, ...rest }) => renderOne({ ...rest, maxTokens }))
  return {
    text: `# Context\n${all.map(({ text }) => text).join('\n')}`,
    shown: all.map(({ shown }) => shown),
  }
}

function renderOne(
  { name, from, text, maxTokens }: Given,
  maxChars = Number.POSITIVE_INFINITY,
): { readonly text: string; readonly shown: ShownSection } {
  const tokens = estimateTokens(text)
  const budget = tokens <= maxTokens ? text.length : Math.floor((text.length * maxTokens) / tokens)
  const said = truncateMiddle(text, Math.min(budget, maxChars))
  return {
    text: block('context', inert(said), ` name=${attribute(name)} from=${attribute(from)}`),
    shown: { name, from, chars: text.length, shownChars: Math.min(said.length, text.length) },
  }
}
