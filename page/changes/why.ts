/** Which origin belongs to a line of a diff. */
import type { ServiceReply } from '../../client/index.ts'

type Blame = ServiceReply<'blameLines'>

/** A changed line of a diff; a removed one has its number in the file on the host. */
export interface AskedLine {
  readonly kind: 'added' | 'removed'
  readonly number: number
  readonly text: string
}

/** Undefined: the run did not have such a line. */
export function originOf(
  { lines, removed, deletion }: Pick<Blame, 'lines' | 'removed' | 'deletion'>,
  line: AskedLine,
): Blame['lines'][number]['origin'] | undefined {
  if (line.kind === 'added') return lines[line.number - 1]?.origin
  // The file on the host may have other lines above: the nearest with this text is meant.
  const far = (number: number) => Math.abs(number - line.number)
  const [nearest] = removed
    .filter(({ text }) => text === line.text || text === `${line.text}\r`)
    .toSorted((a, b) => far(a.line) - far(b.line))
  return nearest?.origin ?? deletion
}
