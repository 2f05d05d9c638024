/** Searches the web by an agent. Without a search provider the results are a demonstration. The argument `vm` uses a VM. */
import { Agent } from 'caisson/agent'

const { status, output, trace } = await Agent.run('Search for Python FastAPI best practices', {
  context: 'Focus on production deployment',
  tools: ['web_search'],
  vm: process.argv.includes('vm'),
})
console.log(`${status}: ${output}`)
console.log(`searches: ${trace.length}`)
if (status === 'error') process.exitCode = 1
