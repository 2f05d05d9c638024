/**
 * Shows a message on the desktop of the user, by the program that the system has for it: `notify-send` (libnotify), on macOS
 * `osascript`. The texts may be the agent's.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { errorMessage } from '#specs/errors.ts'
import type { SendResult } from './post.ts'

export interface DesktopMessage {
  readonly title: string
  readonly text: string
}

const run = promisify(execFile)
const timeoutMs = 15_000
const textMaxChars = 160
/** Of an error, for logs. */
const whyMaxChars = 200

/** Makes one attempt. What fails is a value. */
export async function showOnDesktop(
  message: DesktopMessage,
  { signal, platform = process.platform }: { signal: AbortSignal; platform?: NodeJS.Platform },
): Promise<SendResult> {
  const [program, ...args] = commandOf(message, platform)
  try {
    await run(program, args, { signal, timeout: timeoutMs, killSignal: 'SIGKILL' })
    return { isSent: true }
  } catch (error) {
    const { code, stderr = '' } = error as { code?: unknown; stderr?: string }
    const isMissing = code === 'ENOENT'
    const why = isMissing
      ? `the program ${program} is not installed`
      : `${program}: ${stderr.trim() || errorMessage(error)}`.slice(0, whyMaxChars)
    // Somebody may log in to the desktop later.
    return { isSent: false, why, isRetryable: !isMissing, retryAfterMs: null, isGone: false }
  }
}

function commandOf(message: DesktopMessage, platform: NodeJS.Platform): [string, ...string[]] {
  const title = lineOf(message.title)
  const text = lineOf(message.text)
  if (platform === 'darwin')
    return [
      'osascript',
      ...['-e', 'on run argv', '-e', 'display notification (item 2 of argv) with title (item 1 of argv)'],
      ...['-e', 'end run', title, text],
    ]
  return ['notify-send', '--app-name=Caisson', '--', title, withoutMarkup(text)]
}

/** One line without control characters. */
function lineOf(text: string): string {
  return text
    .replace(/[\p{Cc}\p{Cf}\s]+/gu, ' ')
    .slice(0, textMaxChars)
    .toWellFormed()
}

/** The body of a desktop notification may have markup (Desktop Notifications Specification 1.2). */
function withoutMarkup(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
