/**
 * Lists the simple commands that a shell command runs. What is not certain is not split: whoever relies on the list
 * must ask a person then. The list is for bash without aliases, functions and startup files, as `run_bash` calls it.
 */
import { lexShell, type PlacedToken, type Separator, type Word } from './shell-lexer.ts'

/** One simple command of a text: a program or builtin with its arguments and redirections. */
export interface ShellCommand {
  /** The name and the arguments; at least the name. */
  readonly words: readonly [Word, ...Word[]]
  /** Files for standard input. */
  readonly reads: readonly string[]
  /** Files that it writes, but for /dev/null. */
  readonly writes: readonly Redirection[]
  /** As written, with its redirections. */
  readonly source: string
}

export interface Redirection {
  /** `>`, `>>`, `2>`, `2>>`, `&>` or `&>>`. */
  readonly operator: string
  readonly target: string
}

export type SplitCommand =
  | { readonly isKnown: true; readonly commands: readonly ShellCommand[] }
  /** `doubt` is a noun for people: the first part of the text that is not understood. */
  | { readonly isKnown: false; readonly doubt: string }

/** A person wrote or a model planned fewer; it bounds the work of the rules. */
const commandsMax = 256

/** Never throws; linear in the text. */
export function splitShellCommand(text: string): SplitCommand {
  const lexed = lexShell(text)
  if (!lexed.ok) return unknown(lexed.doubt)
  const commands: ShellCommand[] = []
  let current: PlacedToken[] = []
  let awaited: Separator | undefined
  // At the end there is no token.
  for (const token of [...lexed.tokens, undefined]) {
    if (token !== undefined && token.kind !== 'separator') {
      current.push(token)
      continue
    }
    const separator = token?.separator
    if (current.length === 0) {
      // Line breaks between commands, and the end, need no command before them.
      const isBlank = separator === '\n' || (separator === undefined && awaited === undefined)
      if (!isBlank) return unknown('a separator without a command')
      continue
    }
    const command = readCommand(current, text)
    if (typeof command === 'string') return unknown(command)
    commands.push(command)
    if (commands.length > commandsMax) return unknown(`more than ${commandsMax} commands`)
    current = []
    awaited = separator !== undefined && needsNext.has(separator) ? separator : undefined
  }
  return commands.length === 0 ? unknown('no command') : { isKnown: true, commands }
}

function unknown(doubt: string): SplitCommand {
  return { isKnown: false, doubt }
}

const needsNext: ReadonlySet<Separator> = new Set(['&&', '||', '|', '|&'])

/** @returns the doubt if it is not certain what runs */
function readCommand(tokens: readonly PlacedToken[], text: string): ShellCommand | string {
  // `!` negates the exit code; behind a redirection it would be a name.
  const first = tokens.findIndex((token) => token.kind !== 'word' || token.word.raw !== '!')
  const own = first < 0 ? [] : tokens.slice(first)
  const [name, ...given] = own.flatMap((token) => (token.kind === 'word' ? [token.word] : []))
  if (name === undefined) return 'a redirection or ! without a command'
  const doubt = findDoubt(name, given)
  if (doubt !== undefined) return doubt
  const redirections = own.flatMap((token) =>
    token.kind === 'redirection' && token.target !== null && token.target !== '/dev/null'
      ? [{ operator: token.operator, target: token.target }]
      : [],
  )
  return {
    words: [name, ...given],
    reads: redirections.flatMap(({ operator, target }) => (operator === '<' ? [target] : [])),
    writes: redirections.filter(({ operator }) => operator !== '<'),
    source: text.slice(own[0]?.from, own.at(-1)?.to),
  }
}

/** Names that bash reads as syntax where they are not quoted; rules could not tell them apart from the others. */
const reservedWords: ReadonlySet<string> = new Set(
  '! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until while'.split(
    ' ',
  ),
)

/** Builtins that only do what their name says, whatever their arguments. */
const plainBuiltins = ': cd dirs echo exit false kill popd pushd pwd true type umask'.split(' ')

/** Builtins that run other text as code with some of their arguments, with the check of these. */
const checkedBuiltins: ReadonlyMap<string, (given: readonly Word[]) => boolean> = new Map([
  ['[', isPlainTest],
  ['test', isPlainTest],
  ['printf', isPlainPrintf],
  ['wait', (given: readonly Word[]) => given.length === 0],
])

/**
 * Builtins that run text as code or change what later names mean: `eval`, `source`, `alias`, `export PATH=…`. With
 * the two lists above these are all of bash 5.2.
 */
const doubtfulBuiltins =
  '. alias bg bind break builtin caller command compgen complete compopt continue declare disown enable eval exec export fc fg getopts hash help history jobs let local logout mapfile read readarray readonly return set shift shopt source suspend times trap typeset ulimit unalias unset'.split(
    ' ',
  )

/** Names of bash itself, for the test that compares them with bash. */
export const bashNames = {
  reserved: [...reservedWords],
  builtins: [...plainBuiltins, ...checkedBuiltins.keys(), ...doubtfulBuiltins],
}

const doubtful: ReadonlySet<string> = new Set(doubtfulBuiltins)

/** Why it is not certain what a command with this name and these arguments runs; undefined if it is. */
function findDoubt(name: Word, given: readonly Word[]): string | undefined {
  const keyword = [name.raw, name.literal ?? ''].find((text) => reservedWords.has(text))
  if (keyword !== undefined) return `the keyword ${keyword}`
  if (/^[A-Za-z_]\w*\+?=/.test(name.raw)) return 'an assignment'
  const called = name.raw === '[' ? '[' : name.literal
  if (called === null) return 'a name that the shell expands'
  if (called !== '[' && !/^[\p{L}\p{N}\p{M}_./:,+@-]+$/u.test(called)) return 'an unusual name'
  if (doubtful.has(called)) return `the builtin ${called}`
  const isPlain = checkedBuiltins.get(called)
  return isPlain === undefined || isPlain(given) ? undefined : `these arguments of the builtin ${called}`
}

/** With `-v` and `-R`, test evaluates the name of a variable, and commands in its index. */
function isPlainTest(given: readonly Word[]): boolean {
  return given.every(
    ({ raw, literal }) =>
      raw === ']' ||
      raw === '$?' ||
      raw === '$#' ||
      (literal !== null && literal !== '-v' && literal !== '-R'),
  )
}

/** With `-v` and `%n`, printf sets variables, such as PATH. */
function isPlainPrintf([format]: readonly Word[]): boolean {
  const text = format?.literal ?? null
  if (text === null || text.startsWith('-')) return false
  return !text.replaceAll(/%-?\d*(?:\.\d+)?[sdiuxXocbq%]/g, '').includes('%')
}
