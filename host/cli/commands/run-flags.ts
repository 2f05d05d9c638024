/** What `caisson run` accepts, and the options of the library that it stands for. */

import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import type { Effort } from '#specs/protocol/plan.ts'
import type { ApprovalMode } from '../../approvals/queue.ts'
import { readApprovalRules } from '../../approvals/rules.ts'
import type { RunOptions } from '../../host.ts'
import { readMetadata } from '../../journal/run-query.ts'
import type { AddedFolder } from '../../runs/added-folders.ts'
import { readOutputSchema } from '../../runs/output-schema.ts'
import { findAnyRun } from '../any-run.ts'
import { findRun, type Io } from '../io.ts'
import { type VmFlags, vmOptionsOf } from '../options.ts'
import type { Detail } from '../render/turn-lines.ts'
import { loadMcpFile } from './mcp.ts'
import { rulesOfFlags } from './policy.ts'

export interface RunFlags extends VmFlags, Detail {
  readonly workspace?: string
  /** Each `DIR` or `NAME=DIR`. */
  readonly addDir?: string[]
  readonly image?: string[]
  readonly include?: string[]
  readonly acceptIgnoreRules?: boolean
  readonly envFile?: string
  readonly model?: string
  readonly effort?: Effort
  readonly fallback?: string[]
  /** Each `ID` or `NAME=ID`. */
  readonly stepModel?: string[]
  /** `KEY=VALUE` over the configuration. */
  readonly config?: string[]
  readonly tool?: string[]
  /** A file of MCP servers. */
  readonly mcp?: string
  readonly approve: string
  /** `KEY=VALUE`. */
  readonly metadata?: string[]
  readonly planOnly?: boolean
  readonly approvePlan?: boolean
  /** A run, or a file. */
  readonly planFrom?: string
  /** A run, or the directory of one. */
  readonly replay?: string
  readonly allowHost?: string[]
  /** A file of rules of egress. */
  readonly egress?: string
  /** True, false for `--no-apply`, absent for neither. */
  readonly apply?: boolean
  /** Keeps what the run proposes to remember. */
  readonly acceptMemory?: boolean
  readonly maxTime?: number
  readonly maxTokens?: number
  readonly maxRequests?: number
  readonly maxCost?: number
  readonly maxAgents?: number
  readonly maxDepth?: number
  readonly json?: boolean
  /** Carries the run out in a background process. */
  readonly detach?: boolean
  /** Carries the run out in this process, also while a service runs. */
  readonly here?: boolean
  /** Lets any host of the fleet of the service carry the run out, and nobody else. */
  readonly fleet?: boolean
  /** Shows the run on the web page too. */
  readonly web?: boolean
  /** Prints the final answer alone. */
  readonly quiet?: boolean
  /** A file for the final answer. */
  readonly output?: string
  /** A file with a JSON schema. */
  readonly outputSchema?: string
  /** True for the last run on the directory, or the name of a run. */
  readonly continue?: true | string
  readonly keepVm?: boolean
  /** Boots the VM instead of copying a template. */
  /** `--no-template`. */
  readonly template?: false
}

/** The flags with the id of a run in the place of `last`. */
export async function nameLast(io: Io, flags: RunFlags, place: string | undefined): Promise<RunFlags> {
  const named = { ...flags, ...(flags.continue === true ? { continue: 'last' } : {}) }
  const uses = (['continue', 'replay', 'planFrom'] as const).filter((flag) => named[flag] === 'last')
  if (uses.length === 0) return named
  const at = { ...io, ...(place === undefined ? {} : { directory: place }) }
  const runId =
    flags.fleet === true && !uses.includes('replay')
      ? (await findAnyRun(at, 'last', { mayBeCopy: true })).runId
      : await findRun(at, 'last')
  return { ...named, ...Object.fromEntries(uses.map((flag) => [flag, runId])) }
}

/** `DIR` or `NAME=DIR`; a `/` before the `=` belongs to a path, as in `./a=b`. */
function readFolder(text: string): AddedFolder {
  const [, name, path] = /^([^/=]+)=(.+)$/s.exec(text) ?? []
  return name === undefined || path === undefined ? { path: text } : { path, name }
}

/** `ID` or `NAME=ID`: the name with its id. */
function readStepModels(texts: readonly string[]): Record<string, string> {
  const models = new Map<string, string>()
  for (const text of texts) {
    const at = text.indexOf('=')
    const [name, id] = at < 0 ? [text, text] : [text.slice(0, at), text.slice(at + 1)]
    const earlier = models.get(name) ?? id
    if (earlier !== id)
      throw new CaissonError(
        'invalid_options',
        `--step-model gives the name ${JSON.stringify(name)} to two models, ${earlier} and ${id}. Give each a name of its own.`,
      )
    models.set(name, id)
  }
  return Object.fromEntries(models)
}

export async function optionsOf(io: Io, prompt: string, flags: RunFlags): Promise<RunOptions> {
  const modes: readonly string[] = ['ask', 'all', 'none']
  const rules = modes.includes(flags.approve) ? [] : await readApprovalRules(flags.approve)
  const given = <T>(name: string, value: T | undefined) => (value === undefined ? {} : { [name]: value })
  return {
    prompt,
    ...given('model', flags.model),
    ...given('effort', flags.effort),
    ...given('fallback', flags.fallback),
    ...given('stepModels', flags.stepModel && readStepModels(flags.stepModel)),
    ...given('tools', flags.tool),
    ...given('continue', flags.continue),
    ...given('replay', flags.replay),
    ...given('metadata', flags.metadata === undefined ? undefined : readMetadata(flags.metadata)),
    ...given(
      'outputSchema',
      flags.outputSchema === undefined ? undefined : await readOutputSchema(flags.outputSchema),
    ),
    ...given(
      'images',
      flags.image?.map((file) => path.resolve(file)),
    ),
    ...given('folders', flags.addDir?.map(readFolder)),
    files: {
      ...given('include', flags.include),
      ...given('acceptIgnoreRules', flags.acceptIgnoreRules),
    },
    plan: {
      ...given('only', flags.planOnly),
      ...given('from', flags.planFrom),
      ...given('approve', flags.approvePlan),
    },
    approvals: {
      mode: rules.length > 0 || !modes.includes(flags.approve) ? 'ask' : (flags.approve as ApprovalMode),
      rules,
      interactive:
        flags.json === true ||
        (io.stdin.isTTY === true && (flags.quiet === true ? io.stderr : io.stdout).isTTY === true),
    },
    egress: { rules: await rulesOfFlags(flags) },
    limits: {
      ...given('maxWallMs', flags.maxTime),
      ...given('maxTokens', flags.maxTokens),
      ...given('maxRequests', flags.maxRequests),
      ...given('maxCostUsd', flags.maxCost),
      ...given('maxAgents', flags.maxAgents),
      ...given('maxDepth', flags.maxDepth),
    },
    vm: {
      ...vmOptionsOf(flags),
      start: flags.template === false ? 'cold' : 'auto',
      ...given('keep', flags.keepVm),
    },
    extensions: given('mcpServers', flags.mcp === undefined ? undefined : await loadMcpFile(flags.mcp)),
  }
}
