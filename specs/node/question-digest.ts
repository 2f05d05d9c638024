/** Digest of a question as it is shown, so that an answer counts only for what its person saw. */
import { createHash } from 'node:crypto'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'

/**
 * SHA-256 in hex; the same for as long as the question asks and offers the same.
 * @param question the run, and the question as its list of open questions has it
 */
export function digestOfQuestion({
  runId,
  approval,
}: {
  readonly runId: string
  readonly approval: unknown
}): string {
  return createHash('sha256').update(toCanonicalJson({ runId, approval })).digest('hex')
}
