// Posts each question to a channel of a chat: an incoming webhook of Slack, Mattermost, Discord, or of a bridge of Matrix.
import { type Deliver, fail, RefusedError, requireVariable, start } from './receiver.ts'
import { linesOf } from './words.ts'

const timeoutMs = 10_000
const discordMaxChars = 2_000

/** The JSON of a message. What the agent wrote notifies nobody, and makes no links or pictures. */
const forms: Readonly<Record<string, (lines: readonly string[]) => object>> = {
  slack: (lines) => ({
    text: lines.map(escapeForSlack).join('\n'),
    unfurl_links: false,
    unfurl_media: false,
  }),
  discord: (lines) => ({ content: shorten(lines).join('\n'), allowed_mentions: { parse: [] }, flags: 4 }),
  matrix: (lines) => ({ text: lines.join('\n') }),
}

/** The last line has the link, so the text before it gives way. */
function shorten(lines: readonly string[]): string[] {
  const left = discordMaxChars - (lines.at(-1) ?? '').length - 1
  const text = lines
    .slice(0, -1)
    .join('\n')
    .replaceAll(/([\\`*_~|<>[\]()#@-])/g, '\\$1')
  return [text.length > left ? `${text.slice(0, left - 1)}…` : text, ...lines.slice(-1)]
}

/** As the documentation of Slack asks: no mentions, no hidden links. */
function escapeForSlack(line: string): string {
  return line.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

function deliverToChat(url: string, form: string): Deliver {
  const body = forms[form]
  if (body === undefined) fail(`CHAT_FORM is ${form}; expected one of ${Object.keys(forms).join(', ')}.`)
  return async (question) => {
    const sent = fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body(linesOf(question))),
      redirect: 'error',
      signal: AbortSignal.timeout(timeoutMs),
    })
    // The address is a secret, which the cause could have.
    const response = await sent.catch(() => {
      throw new Error('the chat server does not answer')
    })
    await response.body?.cancel()
    if (response.ok) return
    const isLater = response.status === 429 || response.status >= 500
    throw new (isLater ? Error : RefusedError)(`the chat server answered ${response.status}`)
  }
}

start(deliverToChat(requireVariable('CHAT_URL'), process.env.CHAT_FORM ?? 'slack'))
