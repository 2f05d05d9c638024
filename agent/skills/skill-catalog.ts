/**
 * The skills of one run: the user's, from the task, and those in the workspace. A workspace skill never replaces one
 * of the user's, also when their ids differ only in case.
 */

import { oneLine } from '#specs/node/prompt-block.ts'
import { workspaceSkillFolders } from '#specs/node/skills/workspace-folders.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { SkillHead } from '#specs/protocol/extension.ts'
import type { KnownSkill, SkillCatalog } from '../tool-calls/tool.ts'
import { defaultRoot, type FileToolsOptions, withPlace } from '../workspace/file-access.ts'
import { containedFiles } from './contained-files.ts'

const workspaceBounds = { maxFolders: 500, maxSkills: 64 } as const
const descriptionMaxChars = 500
const problemsMaxCount = 5

/**
 * Builds the catalog of a task with the current skills of the workspace. Never rejects for problems in the workspace.
 */
export async function openSkills(
  heads: readonly SkillHead[] = [],
  files: FileToolsOptions = {},
): Promise<SkillCatalog> {
  const own = heads.map(({ skillId, description }) => ({
    skillId,
    description: oneLine(description),
    source: 'user' as const,
  }))
  const taken = new Map(own.map(({ skillId }) => [skillId.toLowerCase(), skillId]))
  const ownOf = ({ skillId }: KnownSkill): string | undefined => taken.get(skillId.toLowerCase())
  const { skills, problems } = await findInWorkspace(files)
  const shadowed = skills.flatMap((skill) => {
    const one = ownOf(skill)
    if (one === undefined) return []
    const whose = one === skill.skillId ? 'one' : `${one}, which is the same but for case`
    return [`the skill ${skill.skillId} of the workspace is left out: the user has ${whose}`]
  })
  const installs = new Map<string, Promise<Result<void>>>()
  return {
    list: [...own.toSorted(byId), ...skills.filter((one) => ownOf(one) === undefined).toSorted(byId)],
    problems: [...shadowed, ...problems].slice(0, problemsMaxCount),
    installOnce: (skillId, install) => {
      const known = installs.get(skillId)
      if (known !== undefined) return known
      const installing = install().then((result) => {
        if (!result.ok) installs.delete(skillId)
        return result
      })
      installs.set(skillId, installing)
      return installing
    },
  }
}

interface Found {
  readonly skills: readonly KnownSkill[]
  readonly problems: readonly string[]
}

async function findInWorkspace(files: FileToolsOptions): Promise<Found> {
  const known = files.knownAs ?? files.root ?? defaultRoot
  const there: string[] = []
  for (const root of workspaceSkillFolders) if (await isThere(files, root)) there.push(`${known}/${root}`)
  if (there.length === 0) return { skills: [], problems: [] }
  // Loaded only for a workspace with skills: it brings the front-matter parser.
  const { SkillRegistry } = await import('#specs/node/skills/registry.ts')
  const contained = containedFiles(files)
  const registry = new SkillRegistry({ roots: there, files: contained, ...workspaceBounds })
  const skills = (await registry.listSkills()).map(({ skillId, description, folder }) => ({
    skillId,
    description: oneLine(description).slice(0, descriptionMaxChars).toWellFormed(),
    source: 'workspace' as const,
    folder: folder.slice(known.length + 1),
  }))
  const findings = await registry.findings()
  const problems = findings.map(
    ({ path, problem }) => `${oneLine(path.slice(known.length + 1)).slice(0, 200)}: ${oneLine(problem)}`,
  )
  if (contained.isCut) problems.unshift('the folders of skills hold too many names: not all were looked at')
  if (problems.length > problemsMaxCount)
    problems[problemsMaxCount - 1] = `and ${problems.length - problemsMaxCount + 1} more`
  return { skills, problems: problems.map((text) => text.toWellFormed()) }
}

async function isThere(files: FileToolsOptions, folder: string): Promise<boolean> {
  const found = await withPlace(files, folder, {}, (place) => place.stat())
  return found.ok && found.value.isDirectory()
}

function byId(a: KnownSkill, b: KnownSkill): number {
  return a.skillId < b.skillId ? -1 : 1
}
