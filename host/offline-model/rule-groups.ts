/** What a rule's match says: paths, texts, folders, with quotes resolved and `it` replaced. */
import { type Clause, isQuoted, quotedPattern, readToken } from './phrases.ts'
import type { Scene } from './understand-csv.ts'

/** A clause's match, read in the light of what was set aside and of the scene. */
export interface Groups {
  /** A path; `it` is the one named last. */
  path(group: string): string
  /** Text to write or find; null when absent. */
  text(group: string): string | null
  /** The folder that was named; `.` for the workspace. */
  folder(): string
  raw(group: string): string | undefined
  /** The group as the person wrote it, quotes and all. */
  written(group: string): string
}

export function groupsOf(match: RegExpExecArray, clause: Clause, scene: Scene): Groups {
  const raw = (group: string): string | undefined =>
    group.startsWith('=') ? group.slice(1) : match.groups?.[group]
  const path = (group: string): string => {
    const token = raw(group) ?? ''
    if (/^(it|that|them)$/i.test(token)) return scene.last ?? ''
    return readToken(token, clause.quoted)
      .replace(/^(\.\/)+(?=.)/, '')
      .replace(/(?<=.)\/+$/, '')
  }
  const text = (group: string): string | null => {
    const token = raw(group) ?? raw(`${group}Plain`) ?? raw(`${group}Word`)
    return token === undefined ? null : readToken(token, clause.quoted)
  }
  const folder = (): string => {
    const group = raw('folder1') === undefined ? 'folder2' : 'folder1'
    const token = raw(group)
    if (
      token === undefined ||
      /^(here|workspace|project|folder|directory|current|files|code|everything|it|total|all|there)$/i.test(
        token,
      )
    )
      return '.'
    return path(group)
  }
  const written = (group: string): string =>
    (raw(group) ?? '').replaceAll(new RegExp(quotedPattern, 'g'), (mark) => readToken(mark, clause.written))
  return { raw, path, text, folder, written }
}

/** `.py`, `py` and `python` all mean `*.py`; nothing means every file. */
export function patternOf(type: string | undefined): string {
  if (type === undefined || /^(all|the|any|every|of|regular)$/i.test(type)) return '*'
  const words: Record<string, string> = {
    python: 'py',
    javascript: 'js',
    typescript: 'ts',
    markdown: 'md',
    text: 'txt',
    shell: 'sh',
  }
  const plain = words[type.toLowerCase()] ?? type.replace(/^\*?\./, '')
  return type.includes('*') || plain.includes('.') ? type : `*.${plain}`
}

/** Quoted, or with an ending or a slash: what a person would call a file by. */
export function looksLikeFile(path: string, token: string | undefined): boolean {
  return (
    path !== '' &&
    (isQuoted(token ?? '') ||
      /[./]/.test(path) ||
      /^(Makefile|Dockerfile|LICENSE|README|CHANGELOG)$/i.test(path) ||
      /^(it|that)$/i.test(token ?? ''))
  )
}
