/** The reference of all routes and error codes as one page without scripts, made from the OpenAPI document. */
import { problemCodes } from './problem-codes.ts'

interface Operation {
  readonly summary: string
  readonly 'x-scope'?: string
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly required?: boolean }[]
  readonly requestBody?: { readonly content: Record<string, { readonly schema: { readonly $ref: string } }> }
  readonly responses: Readonly<Record<string, { readonly description: string }>>
}
interface Document {
  readonly paths?: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components?: { readonly schemas?: Readonly<Record<string, unknown>> }
}

/** Safe as the page's own style and no script (`referencePolicy`). */
export const referencePolicy =
  "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

export function referencePage(document: object): string {
  const { paths = {}, components = {} } = document as Document
  const routes = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => section(method.toUpperCase(), path, operation)),
  )
  const schemas = Object.entries(components.schemas ?? {}).map(
    ([name, schema]) =>
      `<details id="schema-${escapeHtml(name)}"><summary><code>${escapeHtml(name)}</code></summary>` +
      `<pre>${escapeHtml(JSON.stringify(schema, null, 2))}</pre></details>`,
  )
  const errors = Object.entries(problemCodes).map(
    ([code, meaning]) =>
      `<li id="${escapeHtml(code)}"><code>${escapeHtml(code)}</code> ${escapeHtml(meaning)}</li>`,
  )
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Caisson HTTP API</title><style>${style}</style></head><body><main>
<h1>Caisson HTTP API</h1>
<p>The same as a document for programs: <a href="/openapi.json">openapi.json</a>. Send
<code>Authorization: Bearer TOKEN</code> with every request that has a scope. An error is
<code>application/problem+json</code> with a <code>code</code> of <a href="#errors">these</a>, what failed and what to do.</p>
<h2>Routes</h2>
${routes.join('\n')}
<h2 id="errors">Errors</h2>
<ul>
${errors.join('\n')}
</ul>
<h2>Schemas</h2>
${schemas.join('\n')}
</main></body></html>
`
}

function section(method: string, path: string, operation: Operation): string {
  const { summary, parameters = [], requestBody, responses } = operation
  const scope = operation['x-scope']
  const body = requestBody?.content['application/json']?.schema.$ref.split('/').at(-1)
  const rows = parameters.map(
    ({ name, in: place, required }) =>
      `<li><code>${escapeHtml(name)}</code> (${escapeHtml(place)}${required === true ? ', required' : ''})</li>`,
  )
  if (body !== undefined)
    rows.push(`<li>body: <a href="#schema-${escapeHtml(body)}"><code>${escapeHtml(body)}</code></a></li>`)
  const answers = Object.entries(responses).map(
    ([status, { description }]) => `<li><code>${escapeHtml(status)}</code> ${escapeHtml(description)}</li>`,
  )
  return (
    `<section><h3><code>${escapeHtml(method)} ${escapeHtml(path)}</code></h3><p>${escapeHtml(summary)}. ` +
    `${scope === undefined ? 'No token is needed.' : `Scope: <code>${escapeHtml(scope)}</code>.`}</p>` +
    `${rows.length === 0 ? '' : `<ul>${rows.join('')}</ul>`}` +
    `<details><summary>Answers</summary><ul>${answers.join('')}</ul></details></section>`
  )
}

function escapeHtml(text: string): string {
  const entities: Record<string, string> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    "'": '&#39;',
  }
  return text.replaceAll(/[&<>"']/g, (character) => entities[character] ?? character)
}

const style = `
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0}
main{max-width:52rem;margin:0 auto;padding:1rem}
code,pre{font:14px/1.4 ui-monospace,monospace}
pre{overflow:auto;padding:.75rem;border:1px solid #8885;border-radius:6px}
section{border-top:1px solid #8885;padding:.25rem 0}
h3{margin:.75rem 0 .25rem}p{margin:.25rem 0}
summary{cursor:pointer}
`
