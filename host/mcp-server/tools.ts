/** The tools: start a run, wait for one, list runs, cancel one. There is no tool that approves or applies anything. */
import type {
  CallToolResult,
  InputRequiredResult,
  McpServer,
  ServerContext,
} from '@modelcontextprotocol/server'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { Document, Line, RunId } from '#specs/protocol/text.ts'
import type { RunResource } from '#specs/service/run-resources.ts'
import { ServiceError } from '../../client/index.ts'
import { type McpCaller, mcpMark, viewOwnRun } from './caller.ts'
import { capabilitiesOf, clientNameOf, hasTasks, showsForms } from './client-facts.ts'
import { converse, stateOf, type ToolOptions } from './conversation.ts'
import { digestOfCall } from './request-state.ts'
import { createdTask } from './tasks.ts'

/** Shorter than the minute that clients give a call. */
const waitSecondsDefault = 45
const waitSecondsMax = 600
const runsMax = 50

const WaitSeconds = z.int().min(0).max(waitSecondsMax)

const RunTask = z.strictObject({
  prompt: Document.min(1).describe(
    'The task for the agent. It sees the workspace and nothing of this conversation.',
  ),
  workspace: z
    .string()
    .min(1)
    .max(4_096)
    .regex(/^\/[^\0]*$/, 'expected an absolute path')
    .optional()
    .describe('Absolute path of a folder that the service allows. The agent works on a copy of it.'),
  continueRun: RunId.optional().describe(
    'An ended run whose work the task continues, on the same workspace.',
  ),
  planOnly: z.boolean().optional().describe('The run ends with its plan and changes nothing.'),
  requestKey: z
    .string()
    .regex(/^[\w.-]{1,100}$/, 'expected 1 to 100 letters, digits, ".", "_" or "-"')
    .optional()
    .describe('A name of your own for this task: a repeated call with it starts no second run.'),
  waitSeconds: WaitSeconds.optional().describe(
    `How long to wait for the end. Default ${waitSecondsDefault}. The run continues afterwards.`,
  ),
})

const GetRun = z.strictObject({
  runId: RunId,
  waitSeconds: WaitSeconds.optional().describe('How long to wait for the end. Default 0.'),
})

const ListRuns = z.strictObject({
  status: Line.optional().describe('Such as running, waiting, completed or failed.'),
  limit: z.int().min(1).max(runsMax).optional().describe('Default 20.'),
})

const CancelRun = z.strictObject({ runId: RunId })

type Answer = Promise<CallToolResult | InputRequiredResult>

export function addTools(server: McpServer, options: ToolOptions): void {
  const { caller, slots } = options
  const guarded =
    <Input>(work: (input: Input, context: ServerContext) => Answer) =>
    async (input: Input, context: ServerContext): Answer => {
      try {
        return await slots.use(caller.id, () => work(input, context))
      } catch (error) {
        return failure(error)
      }
    }
  server.registerTool(
    'run_task',
    {
      title: 'Run a task in a sandbox',
      description:
        'Runs an AI agent in a small virtual machine on a copy of a folder, and waits for its answer. Changes of files ' +
        'stay in the run until a person applies them. The agent may ask the person at this client. The answer is untrusted text.',
      inputSchema: RunTask,
      annotations: {
        readOnlyHint: false,
        destructiveHint: false,
        idempotentHint: false,
        openWorldHint: true,
      },
    },
    guarded((input, context) => runTask(server, options, input, context)),
  )
  server.registerTool(
    'get_run',
    {
      title: 'Get a run',
      description:
        'Tells the state of a run and, after its end, its answer. Waits for the end for up to waitSeconds.',
      inputSchema: GetRun,
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    guarded((input, context) => getRun(server, options, input, context)),
  )
  server.registerTool(
    'list_runs',
    {
      title: 'List runs',
      description: 'Lists runs, newest first.',
      inputSchema: ListRuns,
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    guarded((input) => listRuns(caller, input)),
  )
  server.registerTool(
    'cancel_run',
    {
      title: 'Cancel a run',
      description: 'Ends a run that is at work. What it did so far stays to be read.',
      inputSchema: CancelRun,
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
    },
    guarded(({ runId }) => cancelRun(caller, runId)),
  )
}

async function runTask(
  server: McpServer,
  options: ToolOptions,
  input: z.infer<typeof RunTask>,
  context: ServerContext,
): Answer {
  const call = digestOfCall('run_task', input)
  const state = stateOf(context, call)
  const run = state === undefined ? await startRun(options, input, clientNameOf(server, context)) : undefined
  if (run !== undefined && hasTasks(context)) return createdTask(run) as unknown as CallToolResult
  const runId = run?.id ?? state?.runId ?? ''
  const talk = converse(options, {
    ...{ context, runId, call },
    waitMs: (input.waitSeconds ?? waitSecondsDefault) * 1_000,
    showsForms: showsForms(capabilitiesOf(server, context)),
    clientName: clientNameOf(server, context),
    ...(state === undefined ? {} : { state }),
  })
  // Without its ID, a model would start the task again.
  return await talk.catch((error: unknown) => failure(error, `${runId} was started and continues. `))
}

/** Whatever the model asks for, the rules of the owner decide: the call sets neither rules nor who answers. */
async function startRun(
  { caller, workspace }: ToolOptions,
  input: z.infer<typeof RunTask>,
  clientName: string,
): Promise<RunResource> {
  const { prompt, continueRun, planOnly, requestKey } = input
  if (continueRun !== undefined) await requireVisible(caller, continueRun)
  const folder = input.workspace ?? (continueRun === undefined ? workspace : undefined)
  return await caller.service.call('createRun', {
    ...(requestKey === undefined ? {} : { idempotencyKey: `mcp-${requestKey}` }),
    body: {
      prompt,
      metadata: { ...mcpMark, 'mcp-client': clientName },
      ...(folder === undefined ? {} : { workspace: folder }),
      ...(continueRun === undefined ? {} : { continue: continueRun }),
      ...(planOnly === true ? { plan: { only: true } } : {}),
    },
  })
}

/** The service checks whose a run is. Only this server knows which ones a client over stdio sees. */
async function requireVisible(caller: McpCaller, runId: string): Promise<void> {
  if (caller.seesMarkedRunsAlone) await viewOwnRun(caller, runId)
}

async function getRun(
  server: McpServer,
  options: ToolOptions,
  input: z.infer<typeof GetRun>,
  context: ServerContext,
): Answer {
  const call = digestOfCall('get_run', input)
  const state = stateOf(context, call)
  return await converse(options, {
    ...{ context, call, runId: input.runId },
    waitMs: (input.waitSeconds ?? 0) * 1_000,
    showsForms: showsForms(capabilitiesOf(server, context)),
    clientName: clientNameOf(server, context),
    ...(state === undefined ? {} : { state }),
  })
}

async function listRuns(
  { service, seesMarkedRunsAlone }: McpCaller,
  { status, limit = 20 }: z.infer<typeof ListRuns>,
): Answer {
  const query = {
    limit,
    ...(status === undefined ? {} : { status }),
    ...(seesMarkedRunsAlone ? { metadata: JSON.stringify(mcpMark) } : {}),
  }
  const { runs } = await service.call('listRuns', { query: query as never })
  const structuredContent = {
    runs: runs.map(({ id, status: is, startedAt, prompt, workspace, pendingApprovals }) => ({
      ...{
        runId: id,
        status: is,
        startedAt: new Date(startedAt).toISOString(),
        prompt,
        workspace,
        pendingApprovals,
      },
    })),
  }
  return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent }
}

async function cancelRun(caller: McpCaller, runId: string): Answer {
  await requireVisible(caller, runId)
  await caller.service.call('cancelRun', { params: { run: runId }, body: {} })
  return { content: [{ type: 'text', text: `${runId} ends. Call get_run to learn how it ended.` }] }
}

/** A refusal of the service is for the model to read; other failures are those of the protocol. */
function failure(error: unknown, before = ''): CallToolResult {
  if (error instanceof ServiceError || error instanceof CaissonError) {
    const { message } = error
    const remedy = error instanceof CaissonError && error.remedy !== undefined ? `; ${error.remedy}` : ''
    return { content: [{ type: 'text', text: `${before}${message}${remedy}` }], isError: true }
  }
  throw error
}
