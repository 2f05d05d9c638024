// MCP servers in a real VM: programs of the sandbox, over the workspace and over a sub-agent's view; what
// is asked, and what ends.
import { describe, expect, it } from 'vitest'
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { bundleServer, stubbornServer } from '../support/mcp-servers.ts'
import { readFiles, testBench } from '../support/runs.ts'

const call = (name: string, input: unknown) => ({ name, arguments: input })
const one = (name: string, input: unknown): ServerReply => reply({ calls: [call(name, input)] })
/** A line for each process of the stubborn server that ever was: whether it still beats. */
const countBeats =
  'stat -c "%n %s" /tmp/beats-* >/tmp/sizes; sleep 4; while read f a; do b=$(stat -c %s $f); [ $a = $b ] && echo silent || echo beating; done </tmp/sizes'
/** Emulated, and beside other tests, a server takes its time to load. */
const connectTimeoutMs = 240_000
const lastSaid = (asked: Asked): string => asked.messages.at(-1)?.content ?? ''

/** The root agent goes by the words LEAD, its sub-agent by CHILD; each has turns of its own. */
function script(told: string[]) {
  const lead: ServerReply[] = [
    reply({
      calls: [
        call('memory_create_entities', {
          entities: [{ name: 'Caisson', entityType: 'program', observations: ['sealed'] }],
        }),
        call('files_list_directory', { path: '/mnt/workspace' }),
      ],
    }),
    one('spawn_agent', { brief: 'CHILD', name: 'child' }),
    one('run_bash', { command: `cat from-child.txt; ${countBeats}` }),
    one('memory_search_nodes', { query: 'sealed' }),
    reply({ text: 'done' }),
  ]
  const child: ServerReply[] = [
    one('files_write_file', { path: '/mnt/workspace/from-child.txt', content: 'of the child\n' }),
    one('stubborn_beat', {}),
    reply({ text: 'child is done' }),
  ]
  const step = { id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }
  return (asked: Asked): ServerReply => {
    const user = asked.messages.find(({ role }) => role === 'user')?.content ?? ''
    const word = /<instructions>\n(?:.*\n\n)?([A-Z]{2,})/.exec(user)?.[1]
    if (word === undefined) return one('submit_plan', { goal: 'Use the servers', steps: [step] })
    const said = asked.messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? '')
    told.push(...said, lastSaid(asked))
    return (word === 'LEAD' ? lead : child).shift() ?? reply({ text: `${word} has no more turns` })
  }
}

describe('MCP servers in a VM', () => {
  it('are used by the agent and by its sub-agent over a view of its own, where they were allowed, and leave nothing running [A.09]', async () => {
    const told: string[] = []
    await using model = await startModelServer(script(told))
    const [filesystem, memory] = await Promise.all(['filesystem', 'memory'].map(bundleServer))
    const workspaceServers = {
      memory: {
        command: 'node',
        args: ['servers/memory.mjs'],
        env: { MEMORY_FILE_PATH: '/tmp/memory.jsonl' },
        connectTimeoutMs,
      },
      stranger: { command: 'node', args: ['servers/stubborn.mjs'], connectTimeoutMs },
      web: { url: 'https://mcp.example.com/mcp' },
    }
    const bench = await testBench(
      {
        'servers/filesystem.mjs': filesystem ?? '',
        'servers/memory.mjs': memory ?? '',
        'servers/stubborn.mjs': stubbornServer,
        '.mcp.json': JSON.stringify({ mcpServers: workspaceServers }),
      },
      {
        CAISSON_LLM_URL: model.baseUrl,
        CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
        CAISSON_MODEL: 'scripted',
      },
    )
    const node = (name: string, ...args: string[]) => ({
      command: 'node',
      args: [`servers/${name}.mjs`, ...args],
      connectTimeoutMs,
    })
    const { run, state, events } = await bench.run('Use the servers', {
      extensions: {
        mcpServers: {
          files: node('filesystem', '/mnt/workspace'),
          stubborn: node('stubborn'),
          far: { url: 'https://mcp.example.com/mcp', connectTimeoutMs },
        },
      },
      vm: { memoryBytes: 1024 * 1024 ** 2 },
      approvals: { rules: [{ effect: 'allow', tool: mcpOfferTool, pattern: 'memory' }] },
    })
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const said = told.join('\n')
    expect(said).toMatch(/<server-content>\n.*\[DIR\] servers\n<\/server-content>/s)
    expect(said).toContain('"name": "Caisson"')
    // Over its view, by the same path, and home with the rest of its work.
    expect(said).toContain('/mnt/workspace as 1000: {"action":"decline"}')
    expect(said).toContain('[brought over: from-child.txt]')
    expect(said).toContain('of the child')

    const notes = events.flatMap((event) => (event.type === 'note' ? [event.text] : [])).join('\n')
    expect(notes).toContain('MCP server stranger: its tools are not offered')
    expect(notes).toContain('"web": an address that a workspace names is not asked')
    expect(notes).toMatch(/MCP server far: .*the host did not let it through: .*mcp\.example\.com/)
    const asked = events.flatMap((event) =>
      event.type === 'approval-request' && event.request.tool === mcpOfferTool ? [event.request] : [],
    )
    expect(asked.map(({ arguments: given }) => JSON.parse(given).server).sort()).toEqual([
      'memory',
      'stranger',
    ])
    // Of a sub-agent, and to nobody: not even its own default is taken for a person's word.
    const questions = events.filter(
      (event) => event.type === 'approval-request' && event.request.question !== undefined,
    )
    expect(questions).toMatchObject([
      { request: { agentPath: 'root/child', question: { server: 'stubborn', defaultAnswer: true } } },
    ])
    const pinned = await bench.host.mcpPins.list()
    expect(pinned.map(({ server }) => server).sort()).toEqual(['files', 'stubborn'])
    await (await bench.host.changes(run.id)).apply('all')
    expect((await readFiles(bench.workspace))['from-child.txt']).toBe('of the child\n')
    // The root agent's own process beats on; that of the sub-agent, and that of the server which was
    // denied, ended however they resisted.
    const beats = said.split('\n').filter((line) => line === 'silent' || line === 'beating')
    expect([...new Set(beats)].sort()).toEqual(['beating', 'silent'])
    const silent = beats.filter((line) => line === 'silent').length
    expect(silent).toBeGreaterThanOrEqual(beats.length - silent)
  }, 480_000)
})
