// What people read of a question.
import type { Question } from './receiver.ts'

/** Lines of plain text, without the characters that a terminal or a mail program would act on. */
export function linesOf({ runId, title, text, isClaim, link, linkExpiresAt }: Question): string[] {
  const answer =
    link === undefined
      ? `Answer it on the page of the service, or with: caisson attach ${runId}`
      : `Answer it here, once, until ${linkExpiresAt ?? 'it is decided'}: ${link}`
  return [clean(title), clean(text), isClaim ? '(The agent wrote this text.)' : '', answer].filter(
    (line) => line !== '',
  )
}

/** Controls other than line breaks and tabs, and marks that change the direction of text, become a replacement character. */
export function clean(text: string): string {
  return text.replaceAll(/[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/gu, '\ufffd')
}
