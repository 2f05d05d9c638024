/** The diagrams of the pages about workflows are those that the code makes. */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { workflowJsonSchema } from '../../host/workflows/json-schema.ts'
import { diagramsOf, pagesWithDiagrams, withDiagrams } from '../../scripts/workflow-diagrams.ts'

interface Form {
  readonly anyOf?: readonly Form[]
  readonly properties?: object
}

const read = (page: string) => readFileSync(path.join(import.meta.dirname, '../..', page), 'utf8')

it.each(pagesWithDiagrams)('%s has its diagrams as npm run protocol writes them [S3.12]', (page) => {
  const text = read(page)
  expect(diagramsOf(text).length).toBeGreaterThan(0)
  expect(withDiagrams(text)).toBe(text)
})

it('the diagram of the format has every field of lists, steps and functions [S3.01 S3.12]', () => {
  const [, drawn = ''] =
    /<!-- diagram: format -->([\s\S]*?)<!-- end of diagram -->/.exec(read('docs/workspace.md')) ?? []
  const { $defs } = workflowJsonSchema() as { readonly $defs: Readonly<Record<string, Form>> }
  for (const name of ['List', 'Step', 'Function']) {
    const part = $defs[name.toLowerCase()] ?? {}
    const forms = part.anyOf ?? [part]
    const wanted = new Set(forms.flatMap(({ properties }) => Object.keys(properties ?? {})))
    const [, members = ''] = new RegExp(`class ${name} \\{\\n([^}]*)\\}`).exec(drawn) ?? []
    expect(members.match(/\w+(?=\??:)/g)?.toSorted()).toEqual([...wanted].toSorted())
  }
})

it('every sample of the page is drawn [S3.12]', () => {
  const page = read('docs/sample-workspace-json.md')
  const samples = page.match(/^```json5?$/gm) ?? []
  const drawn = diagramsOf(page).filter((name) => name.startsWith('sample '))
  expect(drawn).toEqual(samples.map((_, index) => `sample ${index + 1}`))
})

it('a diagram that nothing makes is an error, not an empty picture [S3.12]', () => {
  const page = (name: string) => `<!-- diagram: ${name} -->\n<!-- end of diagram -->`
  expect(() => withDiagrams(page('weather'))).toThrow('no diagram is named "weather"')
  expect(() => withDiagrams(page('sample 3'))).toThrow('the page has no sample 3')
})
