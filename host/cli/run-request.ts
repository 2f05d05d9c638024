/** The options of `caisson run` as a request to the HTTP service, or the reason why it cannot have them. */
import path from 'node:path'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import { RunId } from '#specs/protocol/text.ts'
import { RunRequest } from '#specs/service/start-resources.ts'
import type { Host, RunOptions } from '../host.ts'
import type { ProviderChoice } from '../providers/providers.ts'
import { findGivenPlan } from '../runs/given-plan.ts'

/** As the service takes. */
const bodyMaxBytes = 8 * 1024 * 1024

/** Each option: `asked` is in the request, `kept` stays with the command; else the flag of what this process alone can do. */
const places = {
  ...{
    prompt: 'asked',
    images: 'asked',
    workspace: 'asked',
    model: 'asked',
    effort: 'asked',
    fallback: 'asked',
    stepModels: 'asked',
    tools: 'asked',
    context: 'asked',
  },
  ...{ metadata: 'asked', outputSchema: 'asked', continue: 'asked', files: 'asked', plan: 'asked' },
  ...{ approvals: 'asked', egress: 'asked', limits: 'asked', vm: 'asked' },
  ...{ onApproval: 'kept', signal: 'kept', onProgress: 'kept', onNotes: 'kept', leaveOnSleep: 'kept' },
  // The command line says nothing of the queue; the service has its own.
  queue: 'kept',
  ...{ replay: '--replay', folders: '--add-dir', extensions: '--mcp' },
} as const satisfies Record<keyof RunOptions, string>

/** Options of a command that settle more than its run. */
export interface CommandSettings {
  readonly config?: readonly string[] | undefined
  readonly envFile?: string | undefined
}

export type Asked =
  | { readonly request: RunRequest; readonly choice: ProviderChoice }
  /** What the service cannot have. */
  | { readonly reason: string }

/** @param service `isOfFleet`: it knows runs that this machine does not. @throws {CaissonError} where nobody can use them */
export async function askFor(
  host: Host,
  options: RunOptions,
  settings: CommandSettings,
  { isOfFleet = false }: { readonly isOfFleet?: boolean } = {},
): Promise<Asked> {
  const [own] = ofThisProcess(options, settings)
  if (own !== undefined) return { reason: `${own} is not possible in the service` }
  const { model, effort, fallback, stepModels, metadata, tools, context, outputSchema, egress, limits } =
    options
  const { vm: { memoryBytes, cpus, diskBytes, keep } = {}, plan, approvals, files } = options
  const choice = await host.provider(model === undefined ? {} : { model })
  const workspace = path.resolve(options.workspace ?? '.')
  const isId = (name: unknown): boolean => isOfFleet && RunId.safeParse(name).success
  const continued =
    options.continue === undefined || isId(options.continue)
      ? options.continue
      : (await host.runs.find(options.continue, workspace)).runId
  const from =
    typeof plan?.from === 'string' && !isId(plan.from) ? await planOf(host, plan.from, workspace) : plan?.from
  const asked = RunRequest.safeParse(
    withoutAbsent({
      ...{ prompt: options.prompt, images: options.images, workspace, model, effort, fallback, stepModels },
      ...{ tools, context, metadata, outputSchema },
      expectedModel: { id: choice.model, server: choice.baseUrl },
      continue: continued,
      files: withoutAbsent({ ...files }),
      plan: withoutAbsent({ ...plan, from }),
      approvals: withoutAbsent({ ...approvals }),
      egress: withoutAbsent({ ...egress }),
      limits: withoutAbsent({ ...limits }),
      vm: withoutAbsent({ memoryBytes, cpus, diskBytes, keep }),
    }),
    plainMessages,
  )
  if (!asked.success) {
    const [issue] = asked.error.issues
    return { reason: `the service cannot take ${issue?.path.join('.')}: ${issue?.message}` }
  }
  if (Buffer.byteLength(JSON.stringify(asked.data)) > bodyMaxBytes)
    return { reason: `the service takes at most ${bodyMaxBytes} bytes` }
  return { request: asked.data, choice }
}

/** What only this process can do, as options of the command line. */
function ofThisProcess(options: RunOptions, { config = [], envFile }: CommandSettings): string[] {
  const { accelerator = 'auto', confine = 'auto', start = 'auto' } = options.vm ?? {}
  const found = {
    '--config': config.length > 0,
    '--env-file': envFile !== undefined,
    '--no-template': start !== 'auto',
    '--accel': accelerator !== 'auto',
    '--qemu-sandbox': confine !== 'auto',
  }
  return [
    ...Object.entries(found).flatMap(([name, isGiven]) => (isGiven ? [name] : [])),
    ...Object.entries(places).flatMap(([name, place]) =>
      place.startsWith('--') && isGiven(options[name as keyof RunOptions]) ? [place] : [],
    ),
  ]
}

/** A group without an option says nothing. */
function isGiven(option: unknown): boolean {
  return option !== undefined && (typeof option !== 'object' || Object.keys(option ?? {}).length > 0)
}

/** A run by its id; the plan of a file by its content, which the service may not be able to read. */
async function planOf(host: Host, name: string, workspace: string): Promise<unknown> {
  const { plan, from } = await findGivenPlan(host.runs, name, workspace)
  return RunId.safeParse(from).success ? from : plan
}

function withoutAbsent(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
}
