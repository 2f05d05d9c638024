/** A workspace with a repository that real git makes, and what an agent does in its copy of it with real git. */
import { execFileSync } from 'node:child_process'
import {
  cpSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { decodePath } from '#specs/node/path-text.ts'
import type { Review } from '../../../workspace/review/review.ts'
import { Bench, type Tree, type TreeNode, treeOf, unwrap } from '../support.ts'

/**
 * The same hashes at every run: two objects share a folder of `.git/objects` always or never.
 * In the future, so that `git gc` never expires the log.
 */
const date = '4000000000 +0000'

/** Runs git without the configuration of this machine. */
export function git(directory: string, ...args: string[]): string {
  return execFileSync('git', args, {
    cwd: directory,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env.PATH,
      HOME: '/nonexistent',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_AUTHOR_NAME: 'A',
      GIT_AUTHOR_EMAIL: 'a@example.org',
      GIT_AUTHOR_DATE: date,
      GIT_COMMITTER_NAME: 'A',
      GIT_COMMITTER_EMAIL: 'a@example.org',
      GIT_COMMITTER_DATE: date,
    },
  })
}

/** What lies in a directory, as a tree of the tests. */
export function readTree(root: string): Tree {
  const sketch: Record<string, TreeNode> = {}
  const visit = (folder: string) => {
    for (const raw of readdirSync(path.join(root, folder), { encoding: 'buffer' })) {
      const name = folder === '' ? decodePath(raw) : `${folder}/${decodePath(raw)}`
      const place = path.join(root, name)
      const stat = lstatSync(place)
      if (stat.isSymbolicLink()) sketch[name] = { kind: 'link', target: readlinkSync(place) }
      else if (stat.isDirectory()) {
        sketch[name] = { kind: 'directory', mode: stat.mode & 0o777 }
        visit(name)
      } else sketch[name] = { kind: 'file', mode: stat.mode & 0o777, content: readFileSync(place) }
    }
  }
  visit('')
  return treeOf(sketch)
}

export type Files = Readonly<Record<string, string | null>>

/** Writes files; null deletes. */
export function put(root: string, files: Files): void {
  for (const [name, content] of Object.entries(files)) {
    const place = path.join(root, name)
    if (content === null) rmSync(place, { recursive: true })
    else {
      mkdirSync(path.dirname(place), { recursive: true })
      writeFileSync(place, content)
    }
  }
}

export class GitBench extends Bench {
  readonly #before: Tree

  /** @param make makes the host's workspace */
  constructor(make: (root: string) => void) {
    super()
    make(this.root)
    this.#before = readTree(this.root)
  }

  /** The review of what the agent made of its copy. */
  async afterAgent(work: (copy: string) => void): Promise<Review> {
    const copy = path.join(this.home, 'copy')
    cpSync(this.root, copy, { recursive: true, verbatimSymlinks: true })
    // What was left out is not in the VM.
    for (const { path: name } of unwrap(await this.scan()).leftOut)
      rmSync(path.join(copy, name), { recursive: true })
    work(copy)
    const after = readTree(copy)
    rmSync(copy, { recursive: true })
    return await this.review(this.#before, after)
  }
}

/** A repository on `main` with one commit of these files. */
export function repository(files: Files, ...more: ((root: string) => void)[]): (root: string) => void {
  return (root) => {
    git(root, 'init', '-q', '-b', 'main')
    put(root, files)
    git(root, 'add', '-A', '-f')
    git(root, 'commit', '-q', '-m', 'first')
    for (const step of more) step(root)
  }
}

/** Writes files and commits all. */
export function commit(root: string, files: Files, ...options: string[]): void {
  put(root, files)
  git(root, 'add', '-A', '-f')
  git(root, 'commit', '-q', '-m', 'work', ...options)
}
