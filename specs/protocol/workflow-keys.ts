/** The keys of a workflow file: `AGENT@VERSION#details`, and with `@step-NAME` or `@func-NAME` before `#details`. */

export interface WorkflowKey {
  readonly agent: string
  readonly version: string
  /** `list` has the order of the steps. */
  readonly kind: 'list' | 'step' | 'func'
  /** Of the step or function; empty for the list. */
  readonly name: string
}

/** What a key must look like, for errors. */
export const keyForms =
  'AGENT@VERSION#details, AGENT@VERSION@step-NAME#details or AGENT@VERSION@func-NAME#details'

const part = '[^@#\\u0000-\\u001f]{1,100}'
const oneName = new RegExp(`^${part}$`)
const form = new RegExp(`^(${part})@{1,2}(${part})(?:@{1,2}(step|func)-(${part}))?#details$`)

/** @returns null where the text is no key */
export function parseKey(text: string): WorkflowKey | null {
  const match = form.exec(text)
  if (match === null) return null
  const [, agent = '', version = '', kind, name = ''] = match
  return { agent, version, kind: kind === 'step' || kind === 'func' ? kind : 'list', name }
}

/** What `from` of a step or function looks like: a key without `#details`. */
export const stepReference = new RegExp(`^${part}@{1,2}${part}@{1,2}step-${part}$`)
export const functionReference = new RegExp(`^${part}@{1,2}${part}@{1,2}func-${part}$`)

/** @param text `AGENT@VERSION`, also with a step or function @returns null where it is none, or may be a path */
export function parseReference(text: string): WorkflowKey | null {
  const key = parseKey(`${text}#details`)
  return key === null || !isStoreName(key.agent) || !isStoreName(key.version) ? null : key
}

/** Whether a store may have an agent or a version of this name. */
export function isStoreName(name: string): boolean {
  return oneName.test(name) && !/[/\\\u007f]/.test(name) && !/^\.*$/.test(name) && name.isWellFormed()
}

/** The key of a step's details. */
export function stepKeyOf({ agent, version }: Pick<WorkflowKey, 'agent' | 'version'>, id: string): string {
  return `${agent}@${version}@step-${id}#details`
}
