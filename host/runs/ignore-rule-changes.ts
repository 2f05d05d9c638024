/**
 * Records which runs changed the ignore rules of a directory, until a person accepts it: `rule-changes.json` in the
 * state folder.
 */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { z } from 'zod'
import type { Folders } from '../state/folders.ts'
import { JsonFile } from '../state/json-file.ts'
import { contains, joinRuleChanges, RuleChange } from '../workspace/index.ts'

/** Changes kept separately per directory; older ones are merged into one. */
const MAX_CHANGES = 10

const Content = z.strictObject({
  workspaces: z.array(z.strictObject({ root: z.string().min(1), changes: z.array(RuleChange) })),
})
type Content = z.infer<typeof Content>

export class KeptRules {
  readonly #file: JsonFile<Content>

  constructor(folders: Pick<Folders, 'home' | 'locks'>) {
    this.#file = new JsonFile(folders, 'rule-changes.json', Content, { workspaces: [] })
  }

  /**
   * Changes that no person has accepted, with paths below `root`: those of runs in the directory, in one below it and in
   * one around it. @throws {CaissonError} `state_unavailable`
   */
  async of(root: string): Promise<readonly RuleChange[]> {
    const { workspaces } = await this.#file.read()
    return workspaces.flatMap((workspace) => changesBelow(root, workspace))
  }

  /** Records a change before the run applies it. @throws {CaissonError} `state_unavailable` */
  async add(root: string, change: RuleChange): Promise<void> {
    await this.#change(root, (changes) => {
      const own = changes.find(({ runId }) => runId === change.runId)
      const others = changes.filter((other) => other !== own)
      const all = [...others, own === undefined ? change : joinRuleChanges(own, change)]
      const [first, second, ...rest] = all
      if (all.length <= MAX_CHANGES || first === undefined || second === undefined) return all
      return [joinRuleChanges(first, second), ...rest]
    })
  }

  /** Accepts the current rules of the directory and of what is below it. @throws {CaissonError} `state_unavailable` */
  async accept(root: string): Promise<void> {
    await this.#file.change((content) => {
      if (content.workspaces.every((workspace) => changesBelow(root, workspace).length === 0)) return content
      const workspaces = content.workspaces.map((workspace) => {
        const changes = workspace.changes.map(({ runId, files }) => ({
          runId,
          files: files.filter((file) => !contains(root, path.join(workspace.root, file.path))),
        }))
        return { root: workspace.root, changes: changes.filter(({ files }) => files.length > 0) }
      })
      return { workspaces: workspaces.filter(({ changes }) => changes.length > 0) }
    })
  }

  /** Removes the change of a run that was undone. @throws {CaissonError} `state_unavailable` */
  async forget(root: string, undone: string): Promise<void> {
    await this.#change(root, (changes) => changes.filter(({ runId }) => runId !== undone))
  }

  async #change(root: string, make: (changes: readonly RuleChange[]) => RuleChange[]): Promise<void> {
    await this.#file.change((content) => {
      const before = content.workspaces.find((workspace) => workspace.root === root)?.changes ?? []
      const changes = make(before)
      if (changes.length === before.length && changes.every((change, at) => change === before[at]))
        return content
      const others = content.workspaces.filter(
        (workspace) => workspace.root !== root && existsSync(workspace.root),
      )
      return { workspaces: changes.length === 0 ? others : [...others, { root, changes }] }
    })
  }
}

/** The changes of one directory to files below another, whose paths they then have. */
function changesBelow(root: string, workspace: Content['workspaces'][number]): RuleChange[] {
  if (workspace.root === root) return workspace.changes
  return workspace.changes.flatMap(({ runId, files }) => {
    const own = files.flatMap((file) => {
      const place = path.join(workspace.root, file.path)
      return contains(root, place) ? [{ ...file, path: path.relative(root, place) }] : []
    })
    return own.length === 0 ? [] : [{ runId, files: own }]
  })
}
