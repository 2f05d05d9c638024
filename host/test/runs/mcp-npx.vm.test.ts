// MCP servers by npx in a real VM: the workspace's own, one from a registry that is allowed, and one that is refused.
import { chmod, symlink } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { whereServer } from '../support/mcp-servers.ts'
import { startPackageServer } from '../support/package-server.ts'
import { readFiles, testBench, writeFiles } from '../support/runs.ts'

const connectTimeoutMs = 240_000
const own = 'node_modules/own-server/cli.js'

describe('MCP servers by npx in a VM', () => {
  it('run from the workspace or from an allowed registry, and are refused with what to do otherwise [A.09 G.03]', async () => {
    await using packages = await startPackageServer()
    const said: string[] = []
    await using model = await startModelServer(({ messages, tools }) => {
      const names = tools.map((tool) => tool.function.name)
      const plan = { goal: 'g', steps: [{ id: 'a', title: 'A', instructions: 'do', needs: [], writes: [] }] }
      if (names.includes('submit_plan')) return reply({ calls: [{ name: 'submit_plan', arguments: plan }] })
      const answers = messages.filter(({ role }) => role === 'tool')
      said.push(...answers.map(({ content }) => content ?? ''))
      if (answers.length > 0) return reply({ text: 'done' })
      const calls = names.filter((name) => name.endsWith('_where')).map((name) => ({ name, arguments: {} }))
      return reply(calls.length === 0 ? { text: 'nothing to call' } : { calls })
    })
    const bench = await testBench(
      {
        'authority.crt': packages.authority.ca,
        [own]: whereServer,
        'node_modules/own-server/package.json': '{"name":"own-server","version":"1.0.0","bin":"cli.js"}',
      },
      {
        ...packages.env,
        CAISSON_LLM_URL: model.baseUrl,
        CAISSON_LLM_KEY: 'sk-of-a-test',
        CAISSON_MODEL: 'scripted',
      },
    )
    await chmod(path.join(bench.workspace, own), 0o755)
    await writeFiles(bench.workspace, { 'node_modules/.bin/keep': '' })
    await symlink('../own-server/cli.js', path.join(bench.workspace, 'node_modules/.bin/own-server'))
    const env = {
      npm_config_registry: 'https://packages.test/npm/',
      NODE_EXTRA_CA_CERTS: '/mnt/workspace/authority.crt',
    }
    const npx = (name: string) => ({ command: 'npx', args: ['-y', name] })
    const { events, state } = await bench.run('Ask the servers', {
      extensions: {
        mcpServers: {
          own: npx('own-server'),
          fetched: { ...npx('caisson-mcp-demo'), env, connectTimeoutMs },
          refused: npx('caisson-not-installed'),
        },
      },
      egress: { rules: [{ effect: 'allow', host: 'packages.test' }] },
      vm: { memoryBytes: 1024 * 1024 ** 2 },
    })
    const notes = events.flatMap((event) => (event.type === 'note' ? [event.text] : [])).join('\n')
    expect(state.end, notes).toMatchObject({ outcome: 'completed' })
    expect(said.join('\n'), notes).toContain(`runs from /mnt/workspace/${own}`)
    expect(said.join('\n'), notes).toMatch(/runs from \/\S+\/_npx\/\S+\/caisson-mcp-demo\/index\.js/)
    expect(packages.asked).toEqual(
      expect.arrayContaining(['https GET /npm/caisson-mcp-demo', 'https GET /caisson-mcp-demo.tgz']),
    )
    expect(notes).toMatch(
      /MCP server refused: npx cannot fetch caisson-not-installed.*npm install caisson-not-installed.*--allow-host/,
    )
    // Nothing was tried at an address that is not allowed.
    expect(packages.connections.filter((one) => one !== 'packages.test:443')).toEqual([])
    expect(Object.keys(await readFiles(bench.workspace))).not.toContain('node_modules/caisson-mcp-demo')
  }, 480_000)
})
