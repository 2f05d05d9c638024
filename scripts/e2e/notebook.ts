/** The application of the end-to-end runs: notes in memory, two tools over them, and lines that report checks. */
import assert from 'node:assert/strict'
import type { ApplicationTools } from '../../runtime/index.ts'

interface Notebook {
  readonly notes: Map<string, string>
  readonly tools: ApplicationTools
}

export function openNotebook(): Notebook {
  const notes = new Map<string, string>()
  const text = { type: 'string' }
  return {
    notes,
    tools: {
      save_note: {
        description: 'Saves a note under a title.',
        parameters: {
          type: 'object',
          properties: { title: text, content: text },
          required: ['title', 'content'],
          additionalProperties: false,
        },
        execute: (input) => {
          const { title, content } = input as { title: string; content: string }
          notes.set(title, content)
          return `saved ${title}`
        },
      },
      list_notes: {
        description: 'Lists the titles of the notes.',
        parameters: { type: 'object', properties: {}, additionalProperties: false },
        readOnly: true,
        execute: () => [...notes.keys()],
      },
    },
  }
}

/** Prints one line per check; throws when it fails. */
export function expectThat(holds: boolean, what: string): void {
  assert.ok(holds, `failed: ${what}`)
  process.stdout.write(`ok: ${what}\n`)
}

/** Runs `main`; prints a failure in one line and exits with 1. */
export function runMain(main: () => Promise<void>): void {
  main().catch((error: unknown) => {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
    process.exitCode = 1
  })
}
