/** Tool calls of a run as those of the protocol: kind, title, places, diffs. Pure; all of it is the agent's claim. */
import path from 'node:path'
import type { ToolCallContent, ToolCallLocation } from '@agentclientprotocol/sdk'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { isPlainRelativePath } from '#specs/protocol/text.ts'
import { toolKindOf } from '#specs/protocol/tool-names.ts'
import { type DiffOrigin, withOrigin } from './diff-origin.ts'

type Of<T extends AgentEvent['type']> = Extract<AgentEvent, { type: T }>

const guestRoot = '/mnt/workspace/'
const locationsMax = 100
const outputMaxChars = 16_384
/** Arguments that say what a call is about, the first that is there. */
const mainArguments = ['path', 'command', 'from', 'code', 'query', 'pattern', 'url', 'host', 'task', 'name']

/** The arguments; undefined where they were cut. */
export function readArguments(json: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(json)
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>
  } catch {
    // Only claims are lost.
  }
  return undefined
}

export function kindOf(tool: string, kind?: Of<'tool-start'>['kind']) {
  return kind ?? toolKindOf(tool)
}

/** One line. */
export function titleOf(tool: string, json: string, agentPath: string): string {
  const given = readArguments(json) ?? {}
  const main = mainArguments.map((name) => given[name]).find((value) => typeof value === 'string')
  const who = agentPath === 'root' ? '' : `[${agentPath.replace(/^root\//, '')}] `
  return `${who}${tool}${main === undefined ? '' : `: ${String(main).replaceAll(/\s+/g, ' ').trim()}`}`
}

/** Where the arguments point, in the workspace on the host. */
export function locationsOf(directory: string, paths: readonly unknown[]): ToolCallLocation[] {
  return paths
    .flatMap((value) => (typeof value === 'string' ? (placeOf(directory, value) ?? []) : []))
    .slice(0, locationsMax)
    .map((place) => ({ path: place }))
}

export function argumentPaths(json: string): readonly unknown[] {
  const { path: at, from, to } = readArguments(json) ?? {}
  return [at, from, to]
}

/** Undefined for what is not below the workspace. */
export function placeOf(directory: string, guestPath: string): string | undefined {
  const below = guestPath.startsWith(guestRoot) ? guestPath.slice(guestRoot.length) : guestPath
  const plain = below.replace(/^\.\//, '').replace(/\/$/, '')
  return isPlainRelativePath(plain) ? path.join(directory, plain) : undefined
}

/** What a call gave: its diffs, or its output. */
export function contentOf(directory: string, event: Of<'tool-end'>): ToolCallContent[] {
  const diffs = (event.diffs ?? []).flatMap(({ path: file, diff = '' }) => {
    const place = placeOf(directory, file)
    return place === undefined
      ? []
      : hunksOf(diff).map(({ origin, ...hunk }) => withOrigin({ type: 'diff', path: place, ...hunk }, origin))
  })
  if (diffs.length > 0 && event.error === undefined) return diffs
  const text = event.error === undefined ? event.output : `${event.error.code}: ${event.error.message}`
  return text.trim() === '' ? [] : [textContent(fenced(text.slice(0, outputMaxChars)))]
}

export function textContent(text: string): ToolCallContent {
  return { type: 'content', content: { type: 'text', text } }
}

/** A block that its text cannot end. */
export function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length))
  const fence = '`'.repeat(longest + 1)
  return `${fence}\n${text.replace(/\n$/, '')}\n${fence}`
}

interface Hunk {
  readonly oldText: string
  readonly newText: string
  readonly origin: DiffOrigin
}

/** Both sides of each part of a unified diff. */
function hunksOf(diff: string): Hunk[] {
  const hunks: { old: string[]; new: string[]; origin: DiffOrigin }[] = []
  for (const line of diff.split('\n')) {
    if (line.startsWith('@@')) hunks.push({ old: [], new: [], origin: originOfHunk(line) })
    const hunk = hunks.at(-1)
    if (hunk === undefined || line.startsWith('@@') || line.startsWith('\\')) continue
    if (line.startsWith('-') || line.startsWith(' ')) hunk.old.push(line.slice(1))
    if (line.startsWith('+') || line.startsWith(' ')) hunk.new.push(line.slice(1))
  }
  return hunks.map(({ origin, ...hunk }) => ({
    ...{ oldText: hunk.old.join('\n'), newText: hunk.new.join('\n'), origin },
  }))
}

/** A side without lines is one without the file. */
function originOfHunk(header: string): DiffOrigin {
  const [, old = '1', oldCount, added = '1', addedCount] =
    /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/.exec(header) ?? []
  const operation =
    old === '0' && oldCount === '0' ? 'add' : added === '0' && addedCount === '0' ? 'delete' : 'modify'
  return { operation, lines: { old: Math.max(1, Number(old)), new: Math.max(1, Number(added)) } }
}
