// Writes specs/protocol.md, docs/events.md, specs/protocol/digest.ts, specs/workflow.schema.json and the diagrams of the pages
// about workflows from the code; `--check` only reports whether they are current.
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { workflowJsonSchema } from '../host/workflows/json-schema.ts'
import { renderEventDocument } from '../specs/node/event-document.ts'
import { renderDigestFile, renderProtocolDocument } from '../specs/node/protocol-document.ts'
import { pagesWithDiagrams, withDiagrams } from './workflow-diagrams.ts'

const root = path.join(import.meta.dirname, '..')
const files = [
  ['specs/protocol.md', renderProtocolDocument()],
  ['docs/events.md', renderEventDocument()],
  ['specs/protocol/digest.ts', renderDigestFile()],
  ['specs/workflow.schema.json', `${JSON.stringify(workflowJsonSchema(), null, 2)}\n`],
  ...pagesWithDiagrams.map(
    (name) => [name, withDiagrams(readFileSync(path.join(root, name), 'utf8'))] as const,
  ),
] as const

let stale = 0
for (const [name, wanted] of files) {
  const file = path.join(root, name)
  if (readText(file) === wanted) continue
  stale++
  if (process.argv.includes('--check')) console.error(`${name} is not current: run npm run protocol`)
  else writeFileSync(file, wanted)
}
console.log(`${files.length} files, ${stale} ${process.argv.includes('--check') ? 'stale' : 'written'}`)
process.exitCode = process.argv.includes('--check') && stale > 0 ? 1 : 0

function readText(file: string): string | null {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return null
  }
}
