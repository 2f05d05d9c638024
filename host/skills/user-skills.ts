/**
 * The user's own skills: every SKILL.md below the roots of the configuration, read on the host when a run begins, and given to
 * the guest whole when it asks. A root that others can change is not read: its words would be taken for the user's.
 */
import { constants, existsSync } from 'node:fs'
import { lstat, open, readdir } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import type * as z from 'zod'
import { reasonOf } from '#specs/node/file-error.ts'
import { type Skill, type SkillFinding, SkillRegistry } from '#specs/node/skills/registry.ts'
import type { SkillHead, SkillLoadAnswer } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Config } from '../config/schema.ts'
import { findDistrust } from '../files/path-trust.ts'
import type { Folders } from '../state/folders.ts'

/** Maximum skills listed in a task. */
const headsMaxCount = 256
const filesMaxCount = 256
const fileMaxBytes = 1024 * 1024
/** All files of one skill. */
const filesMaxBytes = 2 * 1024 * 1024
const depthMax = 8
const skipped: ReadonlySet<string> = new Set(['node_modules', '.git', 'SKILL.md'])

/** Where the user's skills are, in order; a later root wins. */
export function skillRoots(
  { skills }: Pick<Config, 'skills'>,
  { config }: Pick<Folders, 'config'>,
  env: Readonly<Record<string, string | undefined>> = process.env,
): string[] {
  const { roots = [path.join(config, 'skills')] } = skills
  const home = env.HOME || homedir()
  return roots.map((root) => (root.startsWith('~/') ? path.join(home, root.slice(2)) : root))
}

export class UserSkills {
  readonly roots: readonly string[]
  readonly #registry: SkillRegistry
  readonly #skills: readonly Skill[]
  /** What is wrong with roots and skills; untrusted text. */
  readonly problems: readonly SkillFinding[]
  /** Roots that are not there. No fault of a run: they may come, and one configuration may serve several machines. */
  readonly missing: readonly string[]

  private constructor(
    roots: readonly string[],
    registry: SkillRegistry,
    skills: readonly Skill[],
    problems: readonly SkillFinding[],
    missing: readonly string[],
  ) {
    this.roots = roots
    this.#registry = registry
    this.#skills = skills
    this.problems = problems
    this.missing = missing
  }

  static async read(roots: readonly string[]): Promise<UserSkills> {
    const distrusted = roots.flatMap((root) => {
      const problem = distrustOf(root)
      return problem === undefined ? [] : [{ path: root, problem }]
    })
    const trusted = roots.filter((root) => distrusted.every((found) => found.path !== root))
    const registry = new SkillRegistry({ roots: trusted })
    const all = await registry.listSkills()
    const open = all.flatMap(({ folder }) => {
      const problem = distrustOf(path.join(folder, 'SKILL.md'))
      return problem === undefined ? [] : [{ path: folder, problem }]
    })
    const found = all.filter(({ folder }) => open.every((one) => one.path !== folder))
    const problems = [...distrusted, ...open, ...(await registry.findings())]
    if (found.length > headsMaxCount)
      problems.push({ path: trusted[0] ?? '', problem: `runs learn of the first ${headsMaxCount} skills` })
    const missing = roots.filter((root) => !existsSync(root))
    return new UserSkills(roots, registry, found.slice(0, headsMaxCount), problems, missing)
  }

  /** Sorted by id. */
  list(): readonly Skill[] {
    return this.#skills
  }

  /** The skills as listed in a task. */
  heads(): SkillHead[] {
    return this.#skills.map(({ skillId, description }) => ({
      skillId,
      description: description.slice(0, limits.lineMaxChars).toWellFormed(),
    }))
  }

  /** The current skill with its files; null if the id no longer exists. */
  async load(skillId: string): Promise<z.input<typeof SkillLoadAnswer> | null> {
    if (!this.#skills.some((skill) => skill.skillId === skillId)) return null
    const skill = await this.#registry.loadSkill(skillId)
    if (skill === null) return null
    const { files, leftOut } = await readFiles(skill.folder)
    return {
      skillId,
      description: skill.description.slice(0, limits.lineMaxChars).toWellFormed(),
      instructions: cutEnd(skill.instructions),
      files,
      leftOut: leftOut.slice(0, filesMaxCount),
    }
  }
}

function distrustOf(root: string): string | undefined {
  try {
    const found = findDistrust(root)
    if (found === undefined) return undefined
    return `is not read, for ${found.at} ${found.why}: make it yours alone (chmod go-w ${found.at})`
  } catch (error) {
    return `cannot be reached: ${reasonOf(error)}`
  }
}

function cutEnd(text: string): string {
  const note = `\n[… cut: the instructions are longer than ${limits.documentMaxChars} characters …]`
  return text.length <= limits.documentMaxChars
    ? text
    : text.slice(0, limits.documentMaxChars - note.length).toWellFormed() + note
}

type SkillFile = SkillLoadAnswer['files'][number]

/**
 * The regular files below a skill's folder, by name; links, what others can change, and what is too many or
 * too large, are named as left out.
 */
async function readFiles(folder: string): Promise<{ files: SkillFile[]; leftOut: string[] }> {
  const files: SkillFile[] = []
  const leftOut: string[] = []
  let bytes = 0
  const leave = (relative: string): void => {
    if (leftOut.length < filesMaxCount) leftOut.push(relative.slice(0, limits.lineMaxChars).toWellFormed())
  }
  const walk = async (relative: string, depth: number): Promise<void> => {
    const names = await readdir(path.join(folder, relative)).catch(() => [])
    for (const name of names.toSorted()) {
      if (skipped.has(name)) continue
      const below = relative === '' ? name : `${relative}/${name}`
      const stats = await lstat(path.join(folder, below)).catch(() => null)
      if (stats?.isDirectory() === true && depth < depthMax && files.length < filesMaxCount) {
        await walk(below, depth + 1)
        continue
      }
      const content =
        stats?.isFile() === true &&
        isPlainName(below) &&
        distrustOf(path.join(folder, below)) === undefined &&
        files.length < filesMaxCount &&
        stats.size <= Math.min(fileMaxBytes, filesMaxBytes - bytes)
          ? await readWhole(path.join(folder, below), filesMaxBytes - bytes)
          : null
      if (content === null || stats === null) {
        leave(below)
        continue
      }
      bytes += content.length
      const mode = (stats.mode & 0o111) === 0 ? '0644' : '0755'
      files.push({ path: below, mode, base64: content.toString('base64') })
    }
  }
  await walk('', 0)
  return { files, leftOut }
}

/** What can be a file in the guest by the same name. */
function isPlainName(relative: string): boolean {
  return relative.length <= limits.lineMaxChars && relative.isWellFormed() && !/\p{Cc}/u.test(relative)
}

/** Null if it is no longer a file, or has grown. */
async function readWhole(file: string, maxBytes: number): Promise<Buffer | null> {
  try {
    await using handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    const stats = await handle.stat()
    if (!stats.isFile() || stats.size > Math.min(fileMaxBytes, maxBytes)) return null
    const buffer = Buffer.alloc(stats.size)
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, 0)
    return buffer.subarray(0, bytesRead)
  } catch {
    return null
  }
}
