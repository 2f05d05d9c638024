/** What each route does, by calls of the library alone. */

import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import type { z } from 'zod'
import { digestOfQuestion } from '#specs/node/question-digest.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { ApplyRequest } from '#specs/service/change-resources.ts'
import { openApiDocument } from '#specs/service/openapi.ts'
import type { ReplyOf } from '#specs/service/route.ts'
import type { routes } from '#specs/service/routes.ts'
import type { RunRequest, WorkflowRunRequest } from '#specs/service/start-resources.ts'
import {
  type ApprovalAnswer,
  type BlamedLine,
  CaissonError,
  type ChangeSelection,
  type FleetMember,
  type Host,
  type LineOrigin,
  type RunApproval,
  type RunFilter,
  type RunStatus,
} from '../index.ts'
import { makeAgentHandlers } from './agent-handlers.ts'
import { actorOf } from './callers.ts'
import type { RunEvents } from './events.ts'
import { makeFleetHandlers } from './fleet-handlers.ts'
import type { Answer, Call, Handlers } from './handler.ts'
import { requireUnchanged } from './links.ts'
import { isVisible, type Ownership, ownerMetadata, ownPrefix, visibleMetadata } from './ownership.ts'
import { Refusal } from './problems.ts'
import type { Push } from './push.ts'
import type { Quotas } from './quotas.ts'
import type { Readiness } from './readiness.ts'
import { referencePage } from './reference-page.ts'
import { RouteCalls } from './route-calls.ts'
import { headerKey, runIdOf, type StartKey } from './run-keys.ts'
import type { RunWaits } from './run-waits.ts'
import type { Scrape } from './scrape.ts'
import type { ServiceRuns } from './service-runs.ts'
import { makeStateHandlers } from './state-handlers.ts'
import { makeTaskHandlers } from './task-handlers.ts'
import type { Uploads } from './uploads.ts'
import { findQuestion, questionChanged } from './waiting-question.ts'
import { checkWorkflow } from './workflow-handlers.ts'

/** In one list. */
const questionsMax = 1_000

export interface HandlerParts {
  readonly host: Host
  readonly runs: ServiceRuns
  readonly events: RunEvents
  readonly waits: RunWaits
  readonly uploads: Uploads
  readonly ownership: Ownership
  readonly quotas: Quotas
  readonly readiness: Readiness
  readonly scrape: Scrape
  readonly push: Push
  readonly version: string
  /** Whose hosts carry the runs out. Undefined: this process does. */
  readonly fleet: FleetMember | undefined
  /** How untrusted text is shown to people who decide by it. */
  readonly clean: CleanText
  /** Origin by which people reach the service. Absent: unknown. */
  readonly publicUrl: string | undefined
  readonly log: (line: Readonly<Record<string, unknown>>) => void
}

export function makeHandlers(parts: HandlerParts): Handlers {
  const {
    host,
    runs,
    events,
    waits,
    uploads,
    ownership,
    quotas,
    readiness,
    scrape,
    push,
    version,
    clean,
    publicUrl,
    log,
    fleet,
  } = parts
  const document = openApiDocument(version) as { openapi: '3.1.0' }
  const page = referencePage(document)
  const done = { body: undefined }
  const idOf = (caller: Call['caller'], name: string) => runIdOf(host.runs, caller, name)
  const start = async (
    { uploadedWorkspace, ...body }: RunRequest | WorkflowRunRequest,
    { caller }: Call,
    key: StartKey | undefined,
  ): Promise<Answer<ReplyOf<(typeof routes)['createRun']>>> => {
    const uploaded =
      uploadedWorkspace === undefined ? undefined : await uploads.directoryOf(uploadedWorkspace, caller)
    // Another host of a fleet has it elsewhere, and finds it by its id.
    const place = fleet !== undefined ? { uploadedWorkspace } : { workspace: uploaded }
    const request = uploaded === undefined ? body : { ...body, ...place }
    const { runId, isNew } = await runs.start(request, caller, key, () => requireExpectedModel(host, body))
    return {
      ...(isNew || key?.from !== 'path' ? {} : { status: 200 }),
      body: await runs.fullResource(await runs.summary(runId)),
      headers: { location: `/v1/runs/${runId}` },
    }
  }
  const handlers: Handlers = {
    ...makeAgentHandlers({
      ...{ clean, version, publicUrl, log },
      serviceOf: (caller, signal) =>
        new RouteCalls({ handlers, ownership, runIdOf: idOf, events }, caller, signal),
    }),
    ...makeTaskHandlers({ host, runs, version, resultOf }),
    ...makeStateHandlers(host),
    ...makeFleetHandlers(fleet),
    health: async () => ({
      body: { status: 'running', version, ...(fleet === undefined ? {} : { isOfFleet: true as const }) },
    }),
    ready: async () => {
      await readiness.require()
      return { body: { status: 'ready' } }
    },
    metrics: async () => ({ body: await scrape.text() }),
    openApi: async () => ({ body: document }),
    docs: async () => ({ body: page }),

    createWorkspace: async (_, { caller, signal, upload }) => {
      if (upload === undefined) throw new Refusal(400, 'invalid_request', 'the body is empty')
      return { body: await uploads.take(upload, caller, signal) }
    },
    createRun: ({ body }, call) => start(body, call, headerKey(call)),
    putRun: ({ params: { key }, body }, call) => start(body, call, { from: 'path', text: key }),
    checkWorkflow: async ({ body }) => ({ body: checkWorkflow(body) }),
    createWorkflowRun: ({ body }, call) => start(body, call, headerKey(call)),
    putWorkflowRun: ({ params: { key }, body }, call) => start(body, call, { from: 'path', text: key }),
    listRuns: async ({ query: { status, workspace, model, metadata = {}, ...range } }, { caller }) => {
      if (Object.keys(metadata).some((name) => name.startsWith(ownPrefix)))
        throw new Refusal(400, 'invalid_request', `metadata: no key of it starts with ${ownPrefix}`)
      const filter: RunFilter = {
        ...(status === undefined ? {} : { status: status as RunStatus }),
        ...(workspace === undefined ? {} : { workspace }),
        ...(model === undefined ? {} : { model }),
        metadata: { ...metadata, ...visibleMetadata(caller) },
      }
      const { cursor, limit } = range
      const found = await host.runs.page({
        filter,
        ...(cursor === undefined ? {} : { cursor }),
        ...(limit === undefined ? {} : { limit }),
      })
      const visible = found.runs.filter((run) => isVisible(caller, run))
      return { body: { ...found, runs: visible.map((run) => runs.resource(run)) } }
    },
    getRun: async ({ params: { run }, query: { waitMs = 0, until = 'end' } }, { ifNoneMatch, signal }) => {
      if (waitMs > 0) await waits.until(run, until, AbortSignal.any([signal, AbortSignal.timeout(waitMs)]))
      const body = await runs.fullResource(await runs.summary(run))
      const etag = `"${createHash('sha256').update(JSON.stringify(body)).digest('base64url').slice(0, 22)}"`
      const isKnown = ifNoneMatch?.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag) === true
      return { body, headers: { etag }, ...(isKnown ? { status: 304 as const } : {}) }
    },
    getResult: async ({ params: { run }, query: { waitMs = 0 } }, { signal }) => ({
      body: await resultOf(run, waitMs, signal),
    }),
    listEvents: async ({ params: { run }, query: { from, limit, waitMs } }, { signal }) => {
      const range = {
        ...(from === undefined ? {} : { from }),
        ...(limit === undefined ? {} : { limit }),
        ...(waitMs === undefined ? {} : { waitMs }),
      }
      return { body: await events.page(run, range, signal) }
    },
    getImage: async ({ params: { run, image } }) => {
      const { bytes, type } = await host.runs.image(run, image)
      const policy = "default-src 'none'; sandbox"
      return { body: bytes, headers: { 'content-type': type, 'content-security-policy': policy } }
    },
    sendMessage: async ({ params: { run }, body: { text, to, by } }, { caller }) => {
      const options = { by: actorOf(caller, by), ...(to === undefined ? {} : { to }) }
      await runs.act(run, (handle) => handle.steer(text, options))
      return done
    },
    pauseRun: async ({ params: { run }, body: { by } = {} }, { caller }) => {
      await runs.act(run, (handle) => handle.pause({ by: actorOf(caller, by) }))
      return done
    },
    unpauseRun: async ({ params: { run }, body: { by } = {} }, { caller }) => {
      await runs.act(run, (handle) => handle.resume({ by: actorOf(caller, by) }))
      return done
    },
    cancelRun: async ({ params: { run }, body: { now = false, agent, reason, by: said } }, { caller }) => {
      const by = actorOf(caller, said)
      if (agent === undefined) await runs.cancel(run, { by, now })
      else {
        const options = { by, ...(reason === undefined ? {} : { reason }) }
        await runs.act(run, (handle) => handle.cancelAgent(agent, options))
      }
      return done
    },
    resumeRun: async ({ params: { run } }, { caller }) => {
      await runs.resume(run, caller)
      return { body: runs.resource(await runs.summary(run)) }
    },
    removeRun: async ({ params: { run } }) => {
      await runs.summary(run)
      await host.runs.remove(run)
      return done
    },

    listApprovals: async ({ query: { run } }, { caller }) => {
      if (run !== undefined) await ownership.require(caller, run)
      if (run !== undefined) {
        const approvals = await host.runs.pendingApprovals(run)
        return { body: { approvals: approvals.map(questionResource), hasMore: false } }
      }
      const bounds = { metadata: visibleMetadata(caller), maxRuns: questionsMax + 1 }
      const approvals = await host.runs.pendingApprovals(undefined, bounds)
      const ids = approvals.map(({ runId }) => runId)
      const isSeen = await ownership.visible(caller, ids)
      const visible = approvals.filter(({ runId }) => isSeen(runId))
      const shown = visible.slice(0, questionsMax).map(questionResource)
      return { body: { approvals: shown, hasMore: visible.length > questionsMax } }
    },
    getApproval: async ({ params: { run, approval } }, { caller }) => {
      const question = await findQuestion(host.runs, run, approval)
      requireUnchanged(caller, question)
      return { body: questionResource(question) }
    },
    answerApproval: async ({ params: { run, approval }, body: { by, digest, ...answer } }, { caller }) => {
      if (caller.link !== undefined && answer.scope !== 'once')
        throw new Refusal(403, 'forbidden', 'a link answers for this once alone')
      const shown = digest ?? caller.link?.digest
      if (shown !== undefined) {
        // Tells more of a question that does not wait any more; the answer itself is checked where it counts.
        const question = await findQuestion(host.runs, run, approval)
        requireUnchanged(caller, question)
      }
      const given = { ...answer, ...(shown === undefined ? {} : { digest: shown }) } as ApprovalAnswer
      const result = await runs.answer(run, approval, given, { caller, by })
      if (result.taken) return { body: { taken: true } }
      if (result.reason === 'question_changed') throw questionChanged(run)
      const status = result.reason === 'unknown' ? 404 : 409
      throw new Refusal(status, result.reason, result.message, {
        remedy: `list the questions: GET /v1/approvals?run=${run}`,
      })
    },
    getPushKey: async () => ({ body: { publicKey: push.publicKey } }),
    addPushSubscription: async ({ body }, { caller }) => {
      return { body: { id: await push.add(caller, body) } }
    },
    removePushSubscription: async ({ params: { browser } }, { caller }) => {
      await push.remove(caller, browser)
      return done
    },
    listAnswers: async ({ params: { run } }) => ({
      body: { answers: await host.runs.runAnswers(run) },
    }),
    revokeAnswer: async ({ params: { run, approval }, query: { by } }, { caller }) => {
      try {
        await host.revokeAnswer(run, approval, { by: actorOf(caller, by) })
        return done
      } catch (error) {
        const { code, message } = CaissonError.from(error)
        if (code !== 'not_possible_now') throw error
        throw new Refusal(409, code, message, { remedy: `list the answers: GET /v1/runs/${run}/answers` })
      }
    },

    listChanges: async ({ params: { run } }) => {
      const changes = await host.changes(run)
      const list = []
      for await (const change of changes.reviewWithDiffs()) list.push({ ...change, hunks: [...change.hunks] })
      return { body: { directory: changes.directory, changes: list } }
    },
    blameLines: async ({ params: { run }, query: { path } }) => {
      const { lines, removed, calls, deletion, ...about } = await host.blame(run, path)
      return {
        body: {
          ...about,
          lines: lines.map(plainLine),
          removed: removed.map(plainLine),
          ...(deletion === undefined ? {} : { deletion: plainOrigin(deletion) }),
          calls: calls.map((call) => ({ ...call, messages: [...call.messages] })),
        },
      }
    },
    getPatch: async ({ params: { run } }) => {
      const parts: string[] = []
      for await (const { path, diff, noDiff } of (await host.changes(run)).reviewWithDiffs())
        parts.push(diff ?? `# ${JSON.stringify(path)} has no diff: ${noDiff ?? 'unknown'}\n`)
      return { body: parts.join('') }
    },
    getChangedFiles: async ({ params: { run } }) => ({
      body: Readable.from((await host.changes(run)).archive()),
    }),
    applyChanges: async ({ params: { run }, body: { select } }, { caller }) => {
      await runs.settled(run)
      const { applied, parts, already, conflicts, failed, leftOut, notReached, stopped, appliedNow } = await (
        await host.changes(run)
      ).apply(select === 'all' ? select : selectionOf(select), { by: caller.name })
      return {
        body: {
          applied: [...applied],
          parts: [...parts],
          already: [...already],
          conflicts: [...conflicts],
          failed: [...failed],
          leftOut: [...leftOut],
          notReached: [...notReached],
          ...(stopped === undefined ? {} : { stopped: { code: stopped.code, message: stopped.message } }),
          appliedNow,
        },
      }
    },
    undoChanges: async ({ params: { run } }, { caller }) => {
      await runs.settled(run)
      const { restored, conflicts, stopped, appliedNow, problems } = await host.undo(run, { by: caller.name })
      return {
        body: {
          restored: [...restored],
          conflicts: [...conflicts],
          ...(stopped === undefined ? {} : { stopped: { code: stopped.code, message: stopped.message } }),
          appliedNow,
          problems: [...problems],
        },
      }
    },

    forkRun: async ({ params: { run }, body: { at, count, prompts, by } }, { caller }) => {
      const { runIds, ...forks } = await host.fork(run, {
        ...{ at, by: actorOf(caller, by) },
        ...(count === undefined ? {} : { count }),
        ...(prompts === undefined ? {} : { prompts }),
      })
      return { body: { ...forks, runIds: [...runIds] } }
    },
    rewindRun: async ({ params: { run }, body: { to, prompt, despiteEffects, by } }, { caller }) => {
      const { runId, step, effects } = await host.rewind(run, {
        ...{ to, by: actorOf(caller, by) },
        ...(prompt === undefined ? {} : { prompt }),
        ...(despiteEffects === undefined ? {} : { despiteEffects }),
      })
      return {
        body: { runId, step, effects: [...effects] },
        headers: { location: `/v1/runs/${runId}` },
      }
    },
    compareRuns: async ({ query: { runs: names } }, { caller }) => {
      await ownership.require(caller, ...names)
      const compared = await host.compare(names)
      const paths = compared.paths.map(({ runs: cells, ...path }) => ({ ...path, runs: [...cells] }))
      return { body: { runs: [...compared.runs], paths } }
    },
    mergeRuns: async ({ body: { runs: names, takes = [] } }, { caller }) => {
      await ownership.require(caller, ...names, ...takes.map(({ runId }) => runId))
      const chosen = takes.map(({ runId, path, hunks }) => ({
        ...{ runId, path },
        ...(hunks === undefined ? {} : { hunks }),
      }))
      const { runId, entries, merged, conflicts } = await host.merge(names, chosen, {
        metadata: ownerMetadata(caller),
      })
      const body = { entries, merged: [...merged], conflicts: [...conflicts] }
      if (runId === undefined) return { body }
      return { body: { ...body, runId }, headers: { location: `/v1/runs/${runId}` } }
    },
    testRun: async ({ params: { run }, body: { command, timeoutMs } }, { caller, signal }) => ({
      body: await quotas.test(caller, async () => await host.testRun(run, command, { timeoutMs, signal })),
    }),

    listVms: async (_, { caller }) => {
      const running = await host.vms.list()
      const ids = running.map(({ runId }) => runId)
      const isVisible = await ownership.visible(caller, ids)
      const found = running.filter(({ runId }) => isVisible(runId))
      const vms = found.map(({ memoryBytes, cpus, ...vm }) => ({
        ...vm,
        memoryBytes: memoryBytes ?? 0,
        cpus: cpus ?? 0,
      }))
      return { body: { vms } }
    },
  }
  return handlers

  async function resultOf(
    runId: string,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<ReplyOf<(typeof routes)['getResult']>> {
    const handle = await runs.find(runId)
    if (handle === null) return await storedResult(runId)
    try {
      const over = AbortSignal.any([signal, AbortSignal.timeout(waitMs)])
      const ended = await Promise.race([
        handle.result(),
        new Promise<null>((resolve) => {
          if (over.aborted) resolve(null)
          over.addEventListener('abort', () => resolve(null), { once: true })
        }),
      ])
      // Its process may be closing its VM still.
      if (ended === null && (await runs.summary(runId)).state.end !== null) return await storedResult(runId)
      if (ended === null)
        throw new CaissonError('not_possible_now', `${runId} has not ended`, {
          remedy: 'ask again, with waitMs to wait for its end',
        })
      return { ...ended, changes: plainChanges(ended.changes) }
    } finally {
      await runs.release(handle)
    }
  }

  async function storedResult(runId: string): Promise<ReplyOf<(typeof routes)['getResult']>> {
    const { status } = await runs.summary(runId)
    const { state } = await host.runs.fold(runId)
    let journalHead = ''
    await host.runs.visit(runId, ({ hash }) => {
      journalHead = hash
    })
    const { end, changes, usage, isUsageEstimated, costUsd } = state
    if (end === null)
      throw new CaissonError('not_possible_now', `${runId} has not ended; its status is ${status}`, {
        remedy: `continue it: POST /v1/runs/${runId}/resume`,
      })
    const { structured, ...ended } = end
    return {
      runId,
      ...ended,
      ...(structured === true ? { value: JSON.parse(end.summary) as unknown } : {}),
      changes: plainChanges(changes),
      ...{ usage, isUsageEstimated, costUsd, journalHead },
    }
  }
}

function questionResource(question: RunApproval) {
  const { answers, ...approval } = question.approval
  return {
    ...question,
    approval: { ...approval, ...(answers === undefined ? {} : { answers: [...answers] }) },
    digest: digestOfQuestion(question),
  }
}

/** Refuses a run whose prompt would go to another model server than its caller knows of. @throws {Refusal} 409 */
async function requireExpectedModel(
  host: Host,
  { model, expectedModel }: Pick<RunRequest, 'model' | 'expectedModel'>,
): Promise<void> {
  if (expectedModel === undefined) return
  const chosen = await host.provider(model === undefined ? {} : { model })
  if (chosen.model === expectedModel.id && chosen.baseUrl === expectedModel.server) return
  const found =
    chosen.model === expectedModel.id
      ? `the model ${chosen.model} at another server`
      : `the model ${chosen.model}`
  throw new Refusal(
    409,
    'other_model',
    `the service uses ${found}, and the request expects ${expectedModel.id}`,
    {
      remedy: 'start the service with the same configuration and variables, or leave out expectedModel',
    },
  )
}

function plainChanges(
  changes: { readonly entries: number; readonly flagged: readonly string[] } | null,
): { entries: number; flagged: string[] } | null {
  return changes === null ? null : { entries: changes.entries, flagged: [...changes.flagged] }
}

function selectionOf(select: Exclude<z.infer<typeof ApplyRequest>['select'], 'all'>): ChangeSelection {
  const { hunks } = select
  return { paths: 'paths' in select ? select.paths : [], ...(hunks === undefined ? {} : { hunks }) }
}

function plainLine({ origin, ...line }: BlamedLine) {
  return { ...line, origin: plainOrigin(origin) }
}

function plainOrigin(origin: LineOrigin) {
  return origin.kind === 'candidates' ? { ...origin, calls: [...origin.calls] } : origin
}
