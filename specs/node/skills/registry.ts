/**
 * The skills below some roots: every SKILL.md, by the id in its front matter. A later root wins, and ids that differ
 * only in case are equal. Unreadable files are findings, not errors. Links are followed only within their root, each
 * folder once.
 */
import path from 'node:path'
import { CaissonError, requireText } from '../../errors.ts'
import { isWithin, nodeFiles, type SkillFiles } from './files.ts'

export interface Skill {
  /** Its name in the front matter, else its folder's. */
  readonly skillId: string
  readonly title: string
  /** One line; empty when it has none. */
  readonly description: string
  /** Folder of its SKILL.md, with links resolved. */
  readonly folder: string
  /** The root that contains it, as given. */
  readonly root: string
}

export interface LoadedSkill extends Skill {
  /** Its text without front matter, read again. */
  readonly instructions: string
}

/** A problem with a file or folder. */
export interface SkillFinding {
  readonly path: string
  readonly problem: string
}

export interface SkillRegistryOptions {
  /** Absolute, or relative to the process's directory. Later ones win. */
  readonly roots?: readonly string[]
  /** Default: Node's file system. */
  readonly files?: SkillFiles
  /** Maximum folders visited per root; default 5,000. */
  readonly maxFolders?: number
  /** Maximum skills over all roots, and skill files read per root; default 1,000. */
  readonly maxSkills?: number
}

const fileName = 'SKILL.md'
const fileMaxBytes = 1024 * 1024
const depthMax = 8
const defaults = { maxFolders: 5_000, maxSkills: 1_000 } as const
const descriptionMaxChars = 1_024
const skipped: ReadonlySet<string> = new Set(['node_modules', '.git'])
const goodId = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/

/** Loads the YAML parser, which is needed only for skills. */
const loadFrontMatter = () => import('./front-matter.ts')

export class SkillRegistry {
  readonly #files: SkillFiles
  readonly #bounds: Bounds
  #roots: readonly string[]
  #scan: Promise<Scan> | null = null

  constructor({ roots = [], files = nodeFiles, ...bounds }: SkillRegistryOptions = {}) {
    this.#files = files
    this.#bounds = { ...defaults, ...bounds }
    this.#roots = roots.map((root) => path.resolve(root))
  }

  get roots(): readonly string[] {
    return this.#roots
  }

  /** Replaces the roots; their skills are read on next use. */
  setRoots(roots: readonly string[]): void {
    if (!Array.isArray(roots) || !roots.every((root) => typeof root === 'string'))
      throw new CaissonError('invalid_options', 'the roots of the skills: must be a list of paths')
    this.#roots = roots.map((root) => path.resolve(root))
    this.#scan = null
  }

  /** Reads all roots again. */
  async syncSkills(): Promise<readonly Skill[]> {
    this.#scan = null
    return await this.listSkills()
  }

  /** Sorted by id; read once, and again after {@link setRoots} and {@link syncSkills}. */
  async listSkills(): Promise<readonly Skill[]> {
    return (await this.#scanned()).skills
  }

  /** Null for an unknown id. */
  async getSkill(skillId: string): Promise<Skill | null> {
    requireText('the id of the skill', skillId)
    const found = (await this.#scanned()).byKey.get(keyOf(skillId))
    return found?.skillId === skillId ? found : null
  }

  /** The skill with its current instructions; null for an unknown id, or when its file is gone. */
  async loadSkill(skillId: string): Promise<LoadedSkill | null> {
    const skill = await this.getSkill(skillId)
    if (skill === null) return null
    const root = await this.#files.resolve(skill.root).catch(() => null)
    if (root === null) return null
    const text = await readInside(this.#files, path.join(skill.folder, fileName), root.path)
    if (!text.ok) return null
    const { readSkillText } = await loadFrontMatter()
    return { ...skill, instructions: readSkillText(text.value).instructions }
  }

  /** Problems found below the roots. */
  async findings(): Promise<readonly SkillFinding[]> {
    return (await this.#scanned()).findings
  }

  #scanned(): Promise<Scan> {
    this.#scan ??= scanRoots(this.#roots, this.#files, this.#bounds)
    return this.#scan
  }
}

interface Scan {
  readonly skills: readonly Skill[]
  readonly byKey: ReadonlyMap<string, Skill>
  readonly findings: readonly SkillFinding[]
}

interface Bounds {
  readonly maxFolders: number
  readonly maxSkills: number
}

async function scanRoots(roots: readonly string[], files: SkillFiles, bounds: Bounds): Promise<Scan> {
  const { maxSkills } = bounds
  const byKey = new Map<string, Skill>()
  const findings: SkillFinding[] = []
  for (const root of roots) {
    const walk = new Walk(root, files, findings, bounds)
    for (const [key, skill] of await walk.run()) {
      const hidden = byKey.get(key)
      // An equal id is replaced intentionally; another spelling looks like a different skill.
      if (hidden !== undefined && hidden.skillId !== skill.skillId)
        findings.push({
          path: hidden.folder,
          problem: `is hidden: but for case its id ${hidden.skillId} is ${skill.skillId} of ${skill.folder}, whose root comes later`,
        })
      if (byKey.size < maxSkills || hidden !== undefined) byKey.set(key, skill)
      else findings.push({ path: skill.folder, problem: `there are more than ${maxSkills} skills` })
    }
  }
  const skills = [...byKey.values()].toSorted((a, b) => (a.skillId < b.skillId ? -1 : 1))
  return { skills, byKey, findings }
}

/** The comparison key of ids: models and some file systems treat `Deploy` as `deploy`. */
function keyOf(skillId: string): string {
  return skillId.toLowerCase()
}

class Walk {
  readonly #root: string
  readonly #files: SkillFiles
  readonly #findings: SkillFinding[]
  readonly #bounds: Bounds
  #texts = 0
  readonly #found = new Map<string, Skill>()
  readonly #seen = new Set<string>()

  constructor(root: string, files: SkillFiles, findings: SkillFinding[], bounds: Bounds) {
    this.#root = root
    this.#files = files
    this.#findings = findings
    this.#bounds = bounds
  }

  async run(): Promise<ReadonlyMap<string, Skill>> {
    try {
      const real = await this.#files.resolve(this.#root)
      // A missing root is no problem: it may appear later.
      if (real?.kind === 'folder') await this.#folder(real.path, real.path, 0)
      else if (real !== null) this.#note(this.#root, 'is no folder')
    } catch (cause) {
      this.#note(this.#root, wordsOf(cause))
    }
    return this.#found
  }

  async #folder(folder: string, root: string, depth: number): Promise<void> {
    if (this.#seen.has(folder)) return
    this.#seen.add(folder)
    const { maxFolders } = this.#bounds
    if (this.#seen.size > maxFolders) {
      if (this.#seen.size === maxFolders + 1) this.#note(this.#root, `has more than ${maxFolders} folders`)
      return
    }
    for (const name of (await this.#files.list(folder)).toSorted()) {
      const target = path.join(folder, name)
      try {
        if (name === fileName) await this.#skill(target, folder, root)
        else if (!skipped.has(name)) await this.#entry(target, root, depth)
      } catch (cause) {
        this.#note(target, wordsOf(cause))
      }
    }
  }

  async #entry(target: string, root: string, depth: number): Promise<void> {
    const real = await this.#files.resolve(target)
    if (real?.kind !== 'folder') return
    if (!isWithin(root, real.path))
      this.#note(target, 'is a link that leads out of its root; it is not followed')
    else if (depth >= depthMax) this.#note(target, `lies deeper than ${depthMax} folders`)
    else await this.#folder(real.path, root, depth + 1)
  }

  async #skill(file: string, folder: string, root: string): Promise<void> {
    const { maxSkills } = this.#bounds
    // Also counts invalid ones: an invalid front matter takes longer to read than a valid one.
    if (++this.#texts > maxSkills) {
      if (this.#texts === maxSkills + 1)
        this.#note(this.#root, `has more than ${maxSkills} files ${fileName}: the others are not read`)
      return
    }
    const source = await readInside(this.#files, file, root)
    if (!source.ok) return this.#note(file, source.error)
    const { readSkillText } = await loadFrontMatter()
    const text = readSkillText(source.value)
    if (text.problem !== null) this.#note(file, text.problem)
    const named = text.name !== null && goodId.test(text.name)
    if (text.name !== null && !named)
      this.#note(file, "its name is not of 1 to 64 letters, digits, dots, - and _; the folder's is taken")
    const skillId = named && text.name !== null ? text.name : path.basename(folder)
    if (!goodId.test(skillId)) return this.#note(file, 'neither its name nor its folder can be an id')
    if (text.description === null)
      this.#note(file, 'has no description, so that a model cannot tell when to use it')
    const known = this.#found.get(keyOf(skillId))
    if (known !== undefined) {
      const which = known.skillId === skillId ? '' : `, but for case ${known.skillId}`
      return this.#note(file, `has the id ${skillId}${which} of the skill in ${known.folder}, which is kept`)
    }
    const description = (text.description ?? '').slice(0, descriptionMaxChars)
    const title = text.name ?? skillId
    this.#found.set(keyOf(skillId), { skillId, title, description, folder, root: this.#root })
  }

  #note(where: string, problem: string): void {
    if (this.#findings.length < 200) this.#findings.push({ path: where, problem })
  }
}

/** A file within `root` after resolving links. */
async function readInside(
  files: SkillFiles,
  file: string,
  root: string,
): Promise<{ ok: true; value: string } | { ok: false; error: string }> {
  try {
    const real = await files.resolve(file)
    if (real === null) return { ok: false, error: 'is a link to nothing' }
    if (real.kind !== 'file') return { ok: false, error: 'is no file' }
    if (!isWithin(root, real.path))
      return { ok: false, error: 'is a link that leads out of its root; it is not read' }
    const text = await files.read(real.path, fileMaxBytes)
    return text === null
      ? { ok: false, error: `is larger than ${fileMaxBytes} bytes` }
      : { ok: true, value: text }
  } catch (cause) {
    return { ok: false, error: wordsOf(cause) }
  }
}

function wordsOf(cause: unknown): string {
  return `cannot be read: ${cause instanceof Error ? cause.message.slice(0, 200) : 'unknown failure'}`
}
