/** Builds the task for the agent from the settings of a run; excludes what the agent must not know. */

import { CaissonError } from '#specs/errors.ts'
import type { Task } from '#specs/protocol/task.ts'
import { toolsNamedByRules } from '../approvals/rules.ts'
import type { Config } from '../config/schema.ts'
import type { RunHooks } from '../hooks/run-hooks.ts'
import { notesForTask } from '../memory/memory-service.ts'
import type { NoteStore } from '../memory/note-store.ts'
import { placeholderOf } from '../secrets/placeholders.ts'
import type { Secrets } from '../secrets/secrets.ts'
import type { UserSkills } from '../skills/user-skills.ts'
import type { ResolvedRun } from './resolved-run.ts'

/** @param approvesPlan whether a person must approve every plan */
export function taskOf(plan: ResolvedRun, hooks: RunHooks, approvesPlan: boolean): Task {
  const { runId, prompt, provider, limits, tools, approvals, continues, secrets } = plan
  const { mode, given, contextTokens, embeddings, mcp } = plan
  const context = { ...secretsContext(secrets), ...continues?.context, ...plan.context }
  const hostTools = [...(plan.hostTools?.values() ?? [])].map(({ offer }) => offer)
  const ofAgent = hooks.ofAgent
  return {
    runId,
    prompt,
    model: provider.model,
    askTools: toolsNamedByRules(approvals.rules, ['*']),
    limits,
    ...(mode === 'work' ? {} : { mode }),
    ...(approvesPlan ? { approvePlan: true } : {}),
    ...(given === undefined ? {} : { plan: given.plan }),
    ...(contextTokens === undefined ? {} : { contextTokens }),
    ...(Object.keys(context).length === 0 ? {} : { context }),
    ...(tools === undefined ? {} : { tools: [...tools] }),
    ...(embeddings === undefined ? {} : { embeddingModel: embeddings.model }),
    ...(hostTools.length === 0 ? {} : { hostTools }),
    ...(mcp === undefined ? {} : { mcpServers: { ...mcp.servers } }),
    ...(ofAgent.length === 0 ? {} : { hooks: [...ofAgent] }),
    ...knowledgeOf(plan),
  }
}

/** Names beyond these are not listed: they would fill the prompt. */
const listedMaxCount = 100

/** An entry of the task's context; none where there are no secrets. */
function secretsContext(secrets: Secrets): Readonly<Record<string, string>> {
  const bindings = secrets.list()
  if (bindings.length === 0) return {}
  const lines = bindings
    .slice(0, listedMaxCount)
    .map(({ name, hosts }) => `${placeholderOf(name)}: for ${hosts.join(', ')}`)
  const rest = bindings.length > listedMaxCount ? [`and ${bindings.length - listedMaxCount} more`] : []
  const intro =
    'Write such a placeholder in a header of web_fetch, for example authorization: "Bearer {{NAME}}"; the host puts the ' +
    'value in, over https and for these hosts alone. You never see it. A program has it put in by asking an http:// address ' +
    'with the header caisson-upgrade: https.'
  return { secrets: [intro, ...lines, ...rest].join('\n') }
}

/** Problems with skills and notes are reported to `say` and never stop a run. */
export async function readTaskContext(
  { memory }: Pick<Config, 'memory'>,
  skills: UserSkills,
  notes: NoteStore,
  directory: string,
  say: (text: string) => void = () => undefined,
): Promise<Pick<ResolvedRun, 'memory' | 'skills'>> {
  if (skills.problems.length > 0)
    say(`problems with skills: ${skills.problems.length}; to see them: caisson skills list`)
  if (!memory.enabled) return { skills }
  try {
    const damaged = notes.damaged().length
    if (damaged > 0) say(`unreadable notes: ${damaged}; to see them: caisson memory list`)
    return { skills, memory: { store: notes, notes: notesForTask(notes, directory) } }
  } catch (error) {
    if (!(error instanceof CaissonError)) throw error
    say(`this run has no memory: ${error.message}`)
    return { skills }
  }
}

/** The part that is sent with the task. */
function knowledgeOf({ skills, memory }: ResolvedRun): Pick<Task, 'skills' | 'memory'> {
  const heads = skills?.heads() ?? []
  return {
    ...(heads.length === 0 ? {} : { skills: heads }),
    ...(memory === undefined ? {} : { memory: [...memory.notes] }),
  }
}
