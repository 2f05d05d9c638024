/**
 * The sub-agent tools: `spawn_agent` delegates a part of the work; `read_agent_file` and `take_agent_file` handle
 * conflicting files. They only pass requests; the step's runner provides the agents.
 */
import * as z from 'zod'
import { limits } from '#specs/protocol/limits.ts'
import { AgentBounds, AgentIsolation, AgentLimits, Effort } from '#specs/protocol/plan.ts'
import {
  type AgentConflict,
  type AgentResult,
  type Agents,
  agentToolNames,
} from '../tool-calls/sub-agent-types.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { defaultRoot, pathArgument } from '../workspace/file-access.ts'
import { nameInLine } from '../workspace/listing.ts'
import { createReadFile } from './files/file-read.ts'

/** Maximum paths and reasons listed of each kind. */
const listedMax = 100
const textMaxChars = 48 * 1024

const agentArgument = z.string().min(1).max(100).describe('Name of the sub-agent, as its result gives it')

const spawnInput = z.strictObject({
  brief: z
    .string()
    .min(1)
    .max(limits.documentMaxChars / 4)
    .describe('All that it gets: what to do, what is known, which files matter, what to answer'),
  name: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,32}$/)
    .optional()
    .describe('What to call it, such as tests'),
  tools: z.array(z.string().max(64)).max(64).optional().describe('Fewer tools than your own'),
  limits: AgentLimits.optional().describe('Bounds of its own; default a fair share of what the run has left'),
  output: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('JSON schema of an object, when its answer has to be JSON'),
  effort: Effort.optional().describe('How much it thinks before it answers; default as you do'),
  isolation: AgentIsolation.optional().describe(
    'vm: in a virtual machine of its own, over a copy of the disk, for code that is not trusted; it takes longer to start. Default view',
  ),
  hosts: AgentBounds.shape.hosts.describe(
    'With isolation vm: the only hosts that it may reach, such as example.com; [] for none',
  ),
  approvals: AgentBounds.shape.approvals.describe(
    'With isolation vm: deny, so that what needs a permission is refused without a question',
  ),
})

const spawnOutput = z.strictObject({
  agent: z.string(),
  state: z.enum(['completed', 'failed', 'cancelled']),
  reason: z.string(),
  text: z.string(),
  merged: z.array(z.string()),
  mergedCount: z.int().min(0),
  conflicts: z.array(
    z.strictObject({ path: z.string(), yours: z.string().optional(), theirs: z.string().optional() }),
  ),
  conflictCount: z.int().min(0),
  leftOut: z.array(z.strictObject({ path: z.string(), reason: z.string() })),
})
type SpawnOutput = z.output<typeof spawnOutput>

const readInput = z.strictObject({
  agent: agentArgument,
  path: pathArgument,
  offset: z.int().min(1).default(1).describe('First line to read, from 1'),
  limit: z.int().min(1).max(5_000).default(1_000).describe('Lines to read'),
})
const takeInput = z.strictObject({ agent: agentArgument, path: pathArgument })

const names = { spawn: 'spawn_agent', read: 'read_agent_file', take: 'take_agent_file' } as const

/** Whether the tool is defined here. */
export function isAgentTool(name: string): boolean {
  return agentToolNames.includes(name)
}

/** @param models names that a sub-agent may have as its model; default none */
export function createAgentTools(models: readonly string[] = []): Tool[] {
  return [spawnTool(models), readTool(), takeTool()]
}

function spawnTool(models: readonly string[]): Tool {
  const inputSchema =
    models.length === 0
      ? spawnInput
      : spawnInput.extend({ model: z.enum(models).optional().describe('Its model; default yours') })
  return defineTool({
    name: names.spawn,
    description:
      'Has a sub-agent do a part of the work and waits for its answer. It sees the brief and a copy of the workspace as it is now, nothing of this conversation; when it ends, the files that it changed are brought into the workspace. Several calls in one reply run at the same time: give each its own files. What you have changed meanwhile too is not overwritten but named as a conflict. Use it for parts that are independent of one another, not for what a few calls do.',
    inputSchema,
    outputSchema: spawnOutput,
    requiresApproval: false,
    readOnly: false,
    inPrograms: false,
    concurrent: true,
    // It starts work whose calls are checked individually.
    destructive: false,
    preview: ({ brief, tools }) =>
      Promise.resolve(
        `starts a sub-agent${tools === undefined ? '' : ` with ${tools.join(', ')}`}:\n${brief}`,
      ),
    async execute(input, { agents, stepId, signal }) {
      const { brief, name, tools, limits: bounds, output, effort, isolation, hosts, approvals } = input
      const model = 'model' in input && typeof input.model === 'string' ? input.model : undefined
      if (agents === undefined || stepId === undefined)
        return toolFailure('unavailable', 'there are no sub-agents here; do it yourself')
      const result = await agents.spawn(
        {
          brief,
          ...(name === undefined ? {} : { name }),
          ...(tools === undefined ? {} : { tools }),
          ...(bounds === undefined ? {} : { limits: bounds }),
          ...(output === undefined ? {} : { output }),
          ...(effort === undefined ? {} : { effort }),
          ...(model === undefined ? {} : { model }),
          ...(isolation === undefined ? {} : { isolation }),
          ...(hosts === undefined ? {} : { hosts }),
          ...(approvals === undefined ? {} : { approvals }),
        },
        stepId,
        signal,
      )
      return result.refused === undefined
        ? toolSuccess(toOutput(result))
        : { ok: false, error: result.refused }
    },
    render: renderResult,
  })
}

function toOutput(result: AgentResult): SpawnOutput {
  const { agentPath, state, reason, text, merged, conflicts, leftOut } = result
  return {
    agent: agentPath.slice(agentPath.lastIndexOf('/') + 1),
    state,
    reason,
    text: cut(text),
    merged: merged.slice(0, listedMax).map((path) => path.toWellFormed()),
    mergedCount: merged.length,
    conflicts: conflicts.slice(0, listedMax).map(toConflict),
    conflictCount: conflicts.length,
    leftOut: leftOut
      .slice(0, listedMax)
      .map(({ path, reason: why }) => ({ path: path.toWellFormed(), reason: why })),
  }
}

function toConflict({ path, parentText, childText }: AgentConflict): SpawnOutput['conflicts'][number] {
  return {
    path: path.toWellFormed(),
    ...(parentText === undefined ? {} : { yours: parentText }),
    ...(childText === undefined ? {} : { theirs: childText }),
  }
}

/** The answer first, then the state of its files, with names that the other two tools use. */
function renderResult(value: SpawnOutput): string {
  const { agent, state, reason, text, merged, mergedCount, conflicts, conflictCount, leftOut } = value
  const how = state === 'completed' ? 'completed' : `${state} (${reason})`
  const lines = [`[sub-agent ${agent}: ${how}]`, text]
  lines.push(mergedCount === 0 ? '[it brought no changes]' : `[brought over: ${listed(merged, mergedCount)}]`)
  if (leftOut.length > 0)
    lines.push(
      `[not brought over: ${leftOut.map(({ path, reason: why }) => `${nameInLine(path)} (${why})`).join('; ')}]`,
    )
  if (conflictCount > 0) {
    lines.push(
      `[conflicts, changed here and by ${agent}; yours was kept: ${listed(
        conflicts.map(({ path }) => path),
        conflictCount,
      )}. Read its version with read_agent_file, take it with take_agent_file, or merge the two yourself]`,
    )
    for (const { path, yours, theirs } of conflicts) {
      if (yours === undefined && theirs === undefined) continue
      lines.push(
        `--- ${nameInLine(path)}, yours\n${yours ?? '(no text)'}\n--- ${nameInLine(path)}, of ${agent}\n${theirs ?? '(no text)'}`,
      )
    }
  }
  return lines.join('\n')
}

function listed(paths: readonly string[], count: number): string {
  return `${paths.map(nameInLine).join(', ')}${count > paths.length ? ` and ${count - paths.length} more` : ''}`
}

function cut(text: string): string {
  return text.length <= textMaxChars ? text : `${text.slice(0, textMaxChars).toWellFormed()}\n[… cut …]`
}

function readTool(): Tool {
  return defineTool({
    name: names.read,
    description:
      'Reads a text file as a sub-agent left it, by lines, when that could not be brought over. Only of sub-agents that ended with conflicts.',
    inputSchema: readInput,
    outputSchema: z.strictObject({ text: z.string() }),
    requiresApproval: false,
    readOnly: true,
    async execute({ agent, ...page }, context) {
      const root = findView(context.agents, agent)
      if (!root.ok) return root
      const reader = createReadFile({ root: root.value, knownAs: defaultRoot })
      const read = await reader.execute(page, context)
      return read.ok ? toolSuccess({ text: reader.render?.(read.value) ?? '' }) : read
    },
    render: ({ text }) => text,
  })
}

function takeTool(): Tool {
  return defineTool({
    name: names.take,
    description:
      'Makes a path of the workspace what it is in the view of a sub-agent that ended with conflicts: its file, link or directory in the place of yours, or nothing where it had deleted it.',
    inputSchema: takeInput,
    outputSchema: z.strictObject({ path: z.string(), agent: z.string() }),
    requiresApproval: false,
    readOnly: false,
    preview: ({ agent, path }) => Promise.resolve(`replaces ${path} by what sub-agent ${agent} has there`),
    async execute({ agent, path }, { agents }) {
      const view = findView(agents, agent)
      if (!view.ok || agents === undefined)
        return view.ok ? toolFailure('unavailable', 'no sub-agents') : view
      const taken = await agents.takeFile(agent, path)
      return taken.ok ? toolSuccess({ path: taken.value, agent }) : taken
    },
    render: ({ path, agent }) => `${path} is now as ${agent} had it.`,
  })
}

function findView(agents: Agents | undefined, agent: string): ReturnType<Agents['findView']> {
  return agents === undefined
    ? toolFailure('unavailable', 'there are no sub-agents here')
    : agents.findView(agent)
}
