/** Describes the secrets to an agent before its work begins; the same for the whole run. */
import { placeholderOf } from './placeholders.ts'
import type { Secrets } from './secrets.ts'

/** Names beyond these are not listed: they would fill the prompt. */
const listedMaxCount = 100

/** An entry of the task's context; none where there are no secrets. */
export function secretsContext(secrets: Secrets): Readonly<Record<string, string>> {
  const bindings = secrets.list()
  if (bindings.length === 0) return {}
  const lines = bindings
    .slice(0, listedMaxCount)
    .map(({ name, hosts }) => `${placeholderOf(name)}: for ${hosts.join(', ')}`)
  const rest = bindings.length > listedMaxCount ? [`and ${bindings.length - listedMaxCount} more`] : []
  const intro =
    'Write such a placeholder in a header of web_fetch, for example authorization: "Bearer {{NAME}}"; the host puts the ' +
    'value in, over https and for these hosts alone. You never see it. A program has it put in by asking an http:// address ' +
    'with the header caisson-upgrade: https.'
  return { secrets: [intro, ...lines, ...rest].join('\n') }
}
