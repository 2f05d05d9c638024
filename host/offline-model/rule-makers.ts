/** Intents from matches, where that takes a decision. A maker gives null when the match is not this order after all. */
import type { Intent } from './intents.ts'
import { isQuoted, quotedPattern } from './phrases.ts'
import { type Groups, looksLikeFile, patternOf } from './rule-groups.ts'
import { target } from './rule-pieces.ts'
import type { Scene } from './understand-csv.ts'

/** Options are at least two, none twice. */
export function makeAsk(g: Groups): Intent | null {
  const question = g.text('question')?.trim() ?? ''
  const marks = (g.raw('options') ?? '').match(new RegExp(quotedPattern, 'g')) ?? []
  const options = marks.map((mark) => g.text(`=${mark}`) ?? '')
  if (question === '' || options.includes('') || new Set(options).size < options.length) return null
  return { kind: 'ask', question, options, confirm: g.raw('confirm') !== undefined }
}

export function makeReplace(g: Groups): Intent | null {
  const from = g.text('from')
  const to = g.text('to')
  return from === null || to === null || from === ''
    ? null
    : { kind: 'replace', path: g.path('path'), from, to }
}

export function makeMove(g: Groups, scene: Scene): Intent {
  const path = g.path('path')
  const to = g.path('to')
  const base =
    path
      .split('/')
      .filter((part) => part !== '')
      .at(-1) ?? path
  const isFolder =
    g.raw('into') !== undefined ||
    g.raw('into2') !== undefined ||
    to.endsWith('/') ||
    scene.paths.includes(`${to}/`)
  const renamed = g.raw('verb')?.toLowerCase() === 'rename' && !to.includes('/') && path.includes('/')
  const place = isFolder
    ? `${to.replace(/\/+$/, '')}/${base}`
    : renamed
      ? `${path.slice(0, path.length - base.length)}${to}`
      : to
  return /^(copy|duplicate|cp)$/i.test(g.raw('verb') ?? '')
    ? { kind: 'copy', path, to: place }
    : { kind: 'move', path, to: place }
}

export function makeDeletes(g: Groups): Intent[] | null {
  const parts = (g.raw('names') ?? '').split(/\s*(?:,\s*and\s+|,|\s+and\s+)\s*/)
  const one = new RegExp(`^${target('path')}$`, 'i')
  const names = parts.map((part) => one.exec(part)?.groups?.path)
  if (names.some((found) => found === undefined)) return null
  const paths = names.map((found) => g.path(`=${found}`))
  // A bare word such as "everything" is not a name that anyone should delete by.
  const clear = paths.every(
    (path, index) =>
      looksLikeFile(path, names[index]) ||
      /\b(file|folder|directory)\b/i.test(parts[index] ?? '') ||
      /^(it|that)$/i.test(names[index] ?? ''),
  )
  return clear && paths.every((path) => path !== '') ? paths.map((path) => ({ kind: 'delete', path })) : null
}

export function makeSearch(g: Groups): Intent | null {
  const text = g.text('text')
  return text === null || text === '' ? null : { kind: 'search', text, path: g.folder() }
}

export function makeOccurrences(g: Groups): Intent | null {
  const text = g.text('text')
  return text === null || text === '' ? null : { kind: 'occurrences', text, path: g.folder() }
}

export function makeList(g: Groups): Intent {
  return { kind: 'list', pattern: patternOf(g.raw('type')), path: g.folder() }
}

export function makeRead(g: Groups): Intent | null {
  const path = g.path('path')
  return looksLikeFile(path, g.raw('path')) ? { kind: 'read', path } : null
}

const programs =
  /^(awk|bash|cat|cp|curl|cut|date|df|diff|du|echo|env|file|find|git|grep|head|id|ls|make|md5sum|mkdir|mv|node|npm|npx|printf|pwd|python3?|rg|rm|sed|seq|sh|sha256sum|sort|tail|tar|tee|touch|tr|true|uname|uniq|wc|which|whoami|xargs)$/

export function makeRun(g: Groups, how: 'command' | 'any'): Intent | null {
  const raw = g.raw('command') ?? ''
  const command = isQuoted(raw) ? (g.text('command') ?? '') : g.written('command')
  if (isQuoted(raw) || how === 'command') {
    return /^\S+\.(py|sh|js|mjs|cjs|ts)$/.test(command)
      ? makeScript(command, undefined)
      : { kind: 'run', command }
  }
  if (/^[\w./-]+\.(py|sh|js|mjs|cjs|ts)$/.test(command)) return makeScript(command, undefined)
  const program = command.split(' ', 1)[0] ?? ''
  return programs.test(program) || program.startsWith('./') ? { kind: 'run', command } : null
}

export function makeScript(path: string, runner: string | undefined): Intent {
  const ending = /\.(\w+)$/.exec(path)?.[1] ?? ''
  const byEnding: Record<string, string> = {
    py: 'python3',
    sh: 'bash',
    js: 'node',
    mjs: 'node',
    cjs: 'node',
    ts: 'node',
  }
  const byWord: Record<string, string> = {
    python: 'python3',
    python3: 'python3',
    bash: 'bash',
    shell: 'bash',
    sh: 'sh',
    node: 'node',
  }
  const program = byWord[runner?.toLowerCase() ?? ''] ?? byEnding[ending]
  const word = /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`
  return {
    kind: 'run',
    command: program === undefined ? `./${word.replace(/^\.\//, '')}` : `${program} ${word}`,
  }
}

/** The words as the person wrote them; of a text in quotes what is in them. */
export function makeRemember(g: Groups): Intent | null {
  const note = isQuoted(g.raw('note') ?? '') ? (g.text('note') ?? '') : g.written('note')
  return note.trim() === '' ? null : { kind: 'remember', note: note.trim() }
}

export function makeRecall(g: Groups): Intent {
  const query = g.raw('query') ?? ''
  const isAll = query === '' || /^(?:workspace|project|folder|directory|everything|here|it)$/i.test(query)
  return {
    kind: 'recall',
    query: isAll ? '' : isQuoted(query) ? (g.text('query') ?? '') : g.written('query'),
  }
}
