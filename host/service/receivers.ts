/** What the configuration names as receivers, webhooks and the desktop: what they get, and under which id. */
import { createHash } from 'node:crypto'
import type { WebhookMessage } from '#specs/service/webhook-resources.ts'
import type { Messenger, RunApproval, RunSummary } from '../index.ts'
import type { Links } from './links.ts'
import type { Receiver } from './notices.ts'
import { givenMetadata } from './ownership.ts'
import { noticeOf } from './question-notice.ts'
import { keyOf } from './run-keys.ts'

const messageMaxChars = 2_000

/**
 * One receiver for each webhook of the configuration. @param links absent: messages have none
 * @param find the run of a message
 */
export function webhookReceivers(
  messenger: Messenger,
  find: (runId: string) => Promise<RunSummary>,
  links?: Links,
): readonly Receiver[] {
  return messenger.webhooks.map(({ name, events }) => {
    const id = `webhook ${name}`
    const deliver = async (approvalId: string | null, message: WebhookMessage, signal: AbortSignal) =>
      await messenger.sendWebhook(
        name,
        { id: messageId(id, message.data.runId, approvalId), body: JSON.stringify(message) },
        signal,
      )
    const send: Receiver['send'] = async (question, since, signal) => {
      const link = links?.make(question, id, since)
      const run = await find(question.runId)
      return await deliver(question.approval.approvalId, questionMessage(question, run, link), signal)
    }
    const sendEnd: Receiver['sendEnd'] = async (run, since, signal) =>
      await deliver(null, endMessage(run, since), signal)
    return {
      kind: 'webhook',
      id,
      ...(events.includes('question.waiting') ? { send } : {}),
      ...(events.includes('run.ended') ? { sendEnd } : {}),
    }
  })
}

/** The desktop of the service's user, where the configuration names it. */
export function desktopReceivers(messenger: Messenger): readonly Receiver[] {
  if (!messenger.desktop) return []
  const send: Receiver['send'] = async (question, _since, signal) => {
    const { title, text } = noticeOf(question)
    return await messenger.showOnDesktop({ title, text }, signal)
  }
  return [{ kind: 'desktop', id: 'desktop', send }]
}

/** The same for each attempt and after a restart, so that a receiver can drop doubles. */
function messageId(receiver: string, runId: string, approvalId: string | null): string {
  const digest = createHash('sha256').update(JSON.stringify([receiver, runId, approvalId]))
  return `msg_${digest.digest('hex').slice(0, 32)}`
}

function questionMessage(
  question: RunApproval,
  run: RunSummary,
  link: ReturnType<Links['make']> | undefined,
): WebhookMessage {
  const { askedAt, runId, ...notice } = noticeOf(question)
  const linked =
    link === undefined ? {} : { link: link.url, linkExpiresAt: new Date(link.expiresAt).toISOString() }
  return {
    type: 'question.waiting',
    timestamp: askedAt,
    data: { runId, ...aboutRun(run), ...notice, ...linked },
  }
}

function endMessage(run: RunSummary, since: number): WebhookMessage {
  const { outcome, reason, message } = run.state.end ?? { outcome: '', reason: '', message: '' }
  return {
    type: 'run.ended',
    timestamp: new Date(since).toISOString(),
    data: {
      runId: run.id,
      ...aboutRun(run),
      ...{ outcome, reason, message: message.slice(0, messageMaxChars).toWellFormed() },
      changes: run.state.changes?.entries ?? null,
    },
  }
}

/** By which who started it knows the run. */
function aboutRun(run: RunSummary): { key?: string; metadata?: Record<string, string> } {
  const key = keyOf(run)
  const metadata = givenMetadata(run)
  return { ...(key === undefined ? {} : { key }), ...(metadata === undefined ? {} : { metadata }) }
}
