/** Adds notes to a proposal by an agent, and reads them. `--vm` carries the goals out in a VM. */
import { Host } from 'caisson'
import { Agent } from 'caisson/agent'

const proposal = 'PROP-2025-001'
await using agent = new Agent({ vm: process.argv.includes('--vm') })
for (const note of ['Legal review completed', 'Budget approved', 'Ready for vote']) {
  const { status, output } = await agent.run(`Add note to ${proposal}: ${note}`, {
    tools: ['governance_note'],
  })
  console.log(`${status}: ${output}`)
  if (status === 'error') process.exitCode = 1
}
const notes = new Host().notes.ofProposal(proposal)
console.log(JSON.stringify({ proposal_id: proposal, notes: notes.map(({ text }) => text) }))
