/**
 * Texts of others for labels, notifications and dialogs. VS Code makes links out of `[text](command:…)` in notifications and
 * pictures out of `$(name)` in lists; text that passed here has neither.
 */
import { visible, visibleLine } from '../../page/parts/text.ts'

/** One line, cut at `maxChars`, without what draws nothing. */
export function plainLine(text: string, maxChars = 200): string {
  return withoutMarkup(visibleLine(text, maxChars))
}

/** Several lines for a dialog. */
export function plainText(text: string, maxChars = 2_000): string {
  const cut = text.length > maxChars ? `${text.slice(0, maxChars)}…` : text
  return withoutMarkup(visible(cut))
}

/** With an uppercase letter at its beginning. */
export function sentence(text: string): string {
  const line = plainLine(text)
  return line.charAt(0).toUpperCase() + line.slice(1)
}

function withoutMarkup(text: string): string {
  return text.replaceAll('](', '] (').replaceAll('$(', '$ (')
}
