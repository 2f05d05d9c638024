/**
 * Records which runs changed the ignore rules of a directory, until a person accepts it: `rule-changes.json` in the
 * state folder.
 */
import { existsSync } from 'node:fs'
import { z } from 'zod'
import type { Folders } from '../state/folders.ts'
import { JsonFile } from '../state/json-file.ts'
import { joinRuleChanges, RuleChange } from '../workspace/index.ts'

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

  /** Changes that no person has accepted. @throws {CaissonError} `state_unavailable` */
  async of(root: string): Promise<readonly RuleChange[]> {
    const { workspaces } = await this.#file.read()
    return workspaces.find((workspace) => workspace.root === root)?.changes ?? []
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

  /** Accepts the current rules. @throws {CaissonError} `state_unavailable` */
  async accept(root: string): Promise<void> {
    await this.#change(root, () => [])
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
