// The table of `specs/gateway.md` with a request for each tool: every row is carried out by the whole agent, with the
// offline model behind the host's gateway.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { agentToolNames } from '#specs/protocol/tool-names.ts'
import { openToolWorld } from './tool-world.ts'

interface Row {
  readonly request: string
  readonly tool: string
  readonly args: object
  /** `done`, the code of the call's error, or `not offered`. */
  readonly ends: string
}

function readRows(): Row[] {
  const spec = readFileSync(path.join(import.meta.dirname, '../../specs/gateway.md'), 'utf8')
  const [, table = ''] = spec.split('| request in words | tool | arguments | ends |\n|---|---|---|---|\n')
  const lines = table.split('\n')
  return lines
    .slice(
      0,
      lines.findIndex((line) => !line.startsWith('|')),
    )
    .map((line) => {
      const [request = '', tool = '', args = '', ends = ''] = line
        .slice(1, -1)
        .split('|')
        .map((cell) => cell.trim().replaceAll(/^`|`$/g, ''))
      return { request: request.replaceAll('⏎', '\n'), tool, args: JSON.parse(args), ends }
    })
}

const rows = readRows()

const files = {
  'a.txt': 'foo "1"; then 2\n',
  'src/prices.js':
    '// Adds up prices.\nexport const total = (prices) => prices.reduce((sum, price) => sum + price, 0)\n',
  '.agents/skills/deploy/SKILL.md': '---\nname: deploy\ndescription: Deploys it\n---\nRun make deploy.\n',
}

/** `use_mcp_server` names the question of the host about a server, which no model calls; `add_steps` is of workflows alone. */
const notCalled: ReadonlySet<string> = new Set(['use_mcp_server', 'add_steps'])

describe('the offline model', () => {
  it('has a request in plain words for every tool of the agent [S4.06]', () => {
    const inTable = new Set(rows.map(({ tool }) => tool))
    expect(agentToolNames.filter((name) => !inTable.has(name) && !notCalled.has(name))).toEqual([])
  })

  it.each(rows)(
    'makes the call that is asked for: $request [S4.06]',
    async ({ request, tool, args, ends }) => {
      const world = await openToolWorld(files, /demo|MCP/.test(request))
      const atSite = <T>(value: T): T =>
        JSON.parse(JSON.stringify(value).replaceAll('https://example.com', world.site))
      const completion = await world.run(atSite(request))
      const seen = JSON.stringify([completion, world.events])
      if (ends === 'not offered') {
        expect(completion, seen).toMatchObject({ outcome: 'failed' })
        expect(seen).toContain('which this run does not offer')
        return
      }
      expect(completion.outcome, seen).toBe(ends === 'done' ? 'completed' : 'failed')
      if (tool === 'submit_plan') {
        const plans = world.events.flatMap((event) => (event.type === 'plan-update' ? [event.plan] : []))
        expect(plans[0], seen).toMatchObject(args)
        return
      }
      const call = world.events.find((event) => event.type === 'tool-start' && event.tool === tool)
      if (call?.type !== 'tool-start') throw new Error(`${tool} was not called: ${seen}`)
      expect(JSON.parse(call.arguments)).toMatchObject(atSite(args))
      const end = world.events.find((event) => event.type === 'tool-end' && event.callId === call.callId)
      const code = end?.type === 'tool-end' ? (end.error?.code ?? 'done') : 'no end'
      expect(code, seen).toBe(ends)
    },
  )
})
