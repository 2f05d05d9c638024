/** References of a step's instructions to what other steps gave: `{{steps.ID}}` and `{{steps.ID.PATH}}`. Finds them; puts nothing in their place. */

export interface Reference {
  /** As it stands in the text. */
  readonly text: string
  /** Where it begins. */
  readonly at: number
  readonly stepId: string
  /** Names and indices in the step's output; empty for all of it. */
  readonly path: readonly string[]
}

/** `${{ … }}` is a word of other languages, and left alone. */
const form = /(?<!\$)\{\{ *steps\.([^{}\s]+) *\}\}/g

/** The references in `text`, in order. */
export function findReferences(text: string): Reference[] {
  return [...text.matchAll(form)].map((match) => {
    const [stepId = '', ...path] = (match[1] ?? '').split('.')
    return { text: match[0], at: match.index, stepId, path }
  })
}
