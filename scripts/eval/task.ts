/** What a task of the evaluation is: a workspace, a prompt, a hidden check, and a solution that the check accepts. */

export type EvalTag =
  | 'basic'
  | 'python'
  | 'node'
  | 'data'
  | 'git'
  | 'sql'
  | 'text'
  | 'config'
  | 'tests'
  | 'safety'
  | 'refactor'

/** Content by path below the workspace; null: the file is absent. */
export type TaskFiles = Readonly<Record<string, string | null>>

/** Reads a file of the result; null where there is none. */
export type ReadResult = (path: string) => string | null

/** A program that tests the result. It executes code of the agent, so it runs in a sandbox. */
export interface HiddenTest {
  /** Added below {@link hiddenFolder} after the agent has ended. */
  readonly files: Readonly<Record<string, string>>
  /** For bash, in the workspace. It passes with exit code 0 and `checked` as its last line of output. */
  readonly command: string
}

export interface TaskCheck {
  /** What is wrong with the files; none: they are accepted. It executes nothing. */
  readonly findProblems?: (read: ReadResult) => readonly string[]
  readonly test?: HiddenTest
}

export interface EvalTask {
  /** Letters, digits and hyphens; one in the suite. */
  readonly name: string
  readonly tags: readonly EvalTag[]
  readonly difficulty: 'easy' | 'medium' | 'hard'
  readonly prompt: string
  readonly files: Readonly<Record<string, string>>
  /** Commands for bash that complete the workspace, such as a history of git. */
  readonly setup?: string
  readonly check: TaskCheck
  /** Files of a right result, over those of the workspace. */
  readonly solution: TaskFiles
}

export const hiddenFolder = '.hidden-check'

/** A hidden test in Python, which imports modules of the workspace. */
export function pythonTest(code: string): TaskCheck {
  const files = { 'check.py': `import sys\nsys.path.insert(0, '.')\n${code.trim()}\nprint('checked')\n` }
  return { test: { files, command: `python3 -B ${hiddenFolder}/check.py` } }
}

/** A hidden test in JavaScript; it imports modules of the workspace from `../`. */
export function nodeTest(code: string): TaskCheck {
  const files = {
    'check.mjs': `import assert from 'node:assert/strict'\n${code.trim()}\nconsole.log('checked')\n`,
  }
  return { test: { files, command: `node ${hiddenFolder}/check.mjs` } }
}

/** Each file has exactly this text; white space at both ends does not count. Null: there is no such file. */
export function filesAre(expected: TaskFiles): TaskCheck {
  const findProblems = (read: ReadResult) =>
    Object.entries(expected).flatMap(([path, text]) => {
      const found = read(path)
      if (text === null) return found === null ? [] : [`${path} is there, expected no such file`]
      if (found === null) return [`${path} is missing`]
      return found.trim() === text.trim() ? [] : [`${path} has another text than expected`]
    })
  return { findProblems }
}

/** A file has JSON with this value; the order of keys does not count. */
export function jsonIs(path: string, expected: unknown): TaskCheck {
  const findProblems = (read: ReadResult) => {
    const text = read(path)
    if (text === null) return [`${path} is missing`]
    try {
      const isSame = canonical(JSON.parse(text)) === canonical(expected)
      return isSame ? [] : [`${path} has another value than expected`]
    } catch {
      return [`${path} is no JSON`]
    }
  }
  return { findProblems }
}

/** Accepts what all of them accept. At most one has a test. */
export function allOf(...checks: readonly TaskCheck[]): TaskCheck {
  const [test, ...others] = checks.flatMap((check) => check.test ?? [])
  if (others.length > 0) throw new TypeError('expected one hidden test in a check, got several')
  const findProblems = (read: ReadResult) => checks.flatMap((check) => check.findProblems?.(read) ?? [])
  return { findProblems, ...(test === undefined ? {} : { test }) }
}

/** JSON with sorted keys. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  )
}

/** Whole numbers from 0 to below `end`, always the same ones for a seed. */
export function seededNumbers(seed: number): (end: number) => number {
  let state = seed
  return (end) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * end)
  }
}
