/**
 * Adds notes to a proposal by an agent, and reads them. They are kept in memory, or in the SQLite file `NOTES`. The argument
 * `vm` carries the goals out in a VM.
 */
import { createMemoryNotes, SqliteNotes } from 'caisson'
import { Agent } from 'caisson/agent'

const proposal = 'PROP-2025-001'
const { NOTES } = process.env
const storage = NOTES === undefined ? createMemoryNotes() : await SqliteNotes.open(NOTES)
await using agent = new Agent({ vm: process.argv.includes('vm'), notes: storage })
for (const note of ['Legal review completed', 'Budget approved', 'Ready for vote']) {
  const { status, output } = await agent.run(`Add note to ${proposal}: ${note}`, {
    tools: ['governance_note'],
  })
  console.log(`${status}: ${output}`)
  if (status === 'error') process.exitCode = 1
}
const notes = (await storage.list()).flatMap((note) =>
  note.kind === 'governance' && note.proposalId === proposal ? [note.text] : [],
)
console.log(JSON.stringify({ proposal_id: proposal, notes }))
