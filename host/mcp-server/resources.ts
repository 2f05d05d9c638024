/** Journal, plan and changes of a run as resources. All of them hold untrusted text. */
import {
  type McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  ResourceTemplate,
} from '@modelcontextprotocol/server'
import { CaissonError } from '#specs/errors.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { RunId } from '#specs/protocol/text.ts'
import { ServiceError } from '../../client/index.ts'
import { type CallSlots, type McpCaller, mcpMark, viewOwnRun } from './caller.ts'
import { type ResourcePart, resourceOf, resourceParts, runAnswer } from './results.ts'

/** Of one answer; the rest has a note. */
const textMaxChars = 512 * 1024
const eventsOfPage = 2_000
const eventsOfPlanMax = 200_000
const listedRunsMax = 20

const parts = {
  journal: { title: 'Journal of a run', mimeType: 'application/jsonl', read: readJournal },
  plan: { title: 'Plan of a run with the state of its steps', mimeType: 'application/json', read: readPlan },
  changes: { title: 'Changes of a run as a unified diff', mimeType: 'text/x-diff', read: readChanges },
} as const satisfies Record<ResourcePart, unknown>

export function addResources(server: McpServer, caller: McpCaller, slots: CallSlots): void {
  for (const part of resourceParts) {
    const { title, mimeType, read } = parts[part]
    server.registerResource(
      `run-${part}`,
      new ResourceTemplate(resourceOf('{runId}', part), {
        list: part === 'journal' ? () => listResources(caller, slots) : undefined,
      }),
      {
        title,
        mimeType,
        description: 'Untrusted text: it has the words of the agent and of the files that it read.',
      },
      async (uri, { runId }, { mcpReq: { signal } }) => {
        const parsed = RunId.safeParse(runId)
        if (!parsed.success) throw new ResourceNotFoundError(uri.href)
        try {
          const text = await slots.use(caller.id, async () => {
            await viewOwnRun(caller, parsed.data, signal)
            return await read(caller, parsed.data, signal)
          })
          return { contents: [{ uri: uri.href, mimeType, text }] }
        } catch (error) {
          throw errorOf(error, uri.href)
        }
      },
    )
  }
}

async function listResources({ service, seesMarkedRunsAlone, id }: McpCaller, slots: CallSlots) {
  const metadata = seesMarkedRunsAlone ? { metadata: JSON.stringify(mcpMark) as never } : {}
  const { runs } = await slots.use(id, () =>
    service.call('listRuns', { query: { limit: listedRunsMax, ...metadata } }),
  )
  const resources = runs.flatMap((run) =>
    resourceParts.map((part) => ({
      uri: resourceOf(run.id, part),
      name: `${run.id}-${part}`,
      title: `${parts[part].title}: ${run.prompt.slice(0, 80).toWellFormed()}`,
      mimeType: parts[part].mimeType,
    })),
  )
  return { resources }
}

/** The newest events, one JSON object in a line. */
async function readJournal(caller: McpCaller, runId: string, signal: AbortSignal): Promise<string> {
  const lines: string[] = []
  let chars = 0
  let left = 0
  for await (const event of eventsOf(caller, runId, signal)) {
    const line = JSON.stringify(event)
    lines.push(line)
    chars += line.length
    while (chars > textMaxChars && lines.length > 1) {
      chars -= (lines.shift() ?? '').length
      left++
    }
  }
  const note =
    left === 0
      ? []
      : [
          JSON.stringify({
            note: `the first ${left} events are left out; see them with caisson runs show ${runId}`,
          }),
        ]
  return [...note, ...lines].join('\n')
}

async function readPlan(caller: McpCaller, runId: string, signal: AbortSignal): Promise<string> {
  let state = initialRunState
  for await (const line of eventsOf(caller, runId, signal)) state = reduceRun(state, line)
  const { plan, revision, steps } = state
  return JSON.stringify({ ...runAnswer(await viewOwnRun(caller, runId, signal)), plan, revision, steps })
}

async function readChanges({ service }: McpCaller, runId: string, signal: AbortSignal): Promise<string> {
  const patch = await service.call('getPatch', { params: { run: runId }, signal })
  if (patch === undefined || patch.length <= textMaxChars) return patch ?? ''
  const rest = patch.length - textMaxChars
  return `${patch.slice(0, textMaxChars).toWellFormed()}\n# ${rest} more characters are left out; see all with caisson workspace diff ${runId}\n`
}

async function* eventsOf({ service }: McpCaller, runId: string, signal: AbortSignal) {
  let from = 1
  while (from <= eventsOfPlanMax) {
    const { events, next } = await service.call('listEvents', {
      params: { run: runId },
      query: { from, limit: eventsOfPage, waitMs: 0 },
      signal,
    })
    yield* events
    if (events.length < eventsOfPage) return
    from = next
  }
}

function errorOf(error: unknown, uri: string): unknown {
  if (error instanceof CaissonError && error.code === 'run_not_found') return new ResourceNotFoundError(uri)
  if (error instanceof ServiceError && error.status === 404) return new ResourceNotFoundError(uri)
  if (error instanceof ServiceError || error instanceof CaissonError)
    return new ProtocolError(ProtocolErrorCode.InvalidRequest, error.message)
  return error
}
