/**
 * Finds references in a step's instructions to other steps' outputs: `{{steps.ID}}` and `{{steps.ID.PATH}}`. Does not
 * resolve them.
 */

export interface Reference {
  /** The reference's original text. */
  readonly text: string
  /** Its offset. */
  readonly at: number
  readonly stepId: string
  /** Names and indices in the step's output; empty for the whole. */
  readonly path: readonly string[]
}

/** `${{ … }}` belongs to other languages and is ignored. */
const form = /(?<!\$)\{\{ *steps\.([^{}\s]+) *\}\}/g

/** The references in `text`, in order. */
export function findReferences(text: string): Reference[] {
  return [...text.matchAll(form)].map((match) => {
    const [stepId = '', ...path] = (match[1] ?? '').split('.')
    return { text: match[0], at: match.index, stepId, path }
  })
}
