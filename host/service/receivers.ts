/** What the configuration names as receivers of questions, webhooks and the desktop: what they get, and under which id. */
import { createHash } from 'node:crypto'
import type { Messenger, RunApproval } from '../index.ts'
import type { Links } from './links.ts'
import type { Receiver } from './notices.ts'
import { noticeOf } from './question-notice.ts'

/** One receiver for each webhook of the configuration. @param links absent: messages have none */
export function webhookReceivers(messenger: Messenger, links?: Links): readonly Receiver[] {
  return messenger.webhooks.map((name) => {
    const id = `webhook ${name}`
    return {
      kind: 'webhook',
      id,
      send: async (question, since, signal) => {
        const message = {
          id: messageId(id, question),
          body: bodyOf(question, links?.make(question, id, since)),
        }
        return await messenger.sendWebhook(name, message, signal)
      },
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
function messageId(receiver: string, { runId, approval: { approvalId } }: RunApproval): string {
  const digest = createHash('sha256').update(JSON.stringify([receiver, runId, approvalId]))
  return `msg_${digest.digest('hex').slice(0, 32)}`
}

function bodyOf(question: RunApproval, link: ReturnType<Links['make']> | undefined): string {
  const { askedAt, ...notice } = noticeOf(question)
  const linked =
    link === undefined ? {} : { link: link.url, linkExpiresAt: new Date(link.expiresAt).toISOString() }
  return JSON.stringify({ type: 'question.waiting', timestamp: askedAt, data: { ...notice, ...linked } })
}
