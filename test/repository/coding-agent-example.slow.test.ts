// A coding agent of npm in a real VM, by examples/sandbox-tools: its model is a scripted server behind TLS, and its key
// stays on the host.
import { once } from 'node:events'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, type Socket } from 'node:net'
import path from 'node:path'
import { createServer } from 'node:tls'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { makeAuthority } from '../../host/test/support/authority.ts'
import { startConnectProxy } from '../../host/test/support/connect-proxy.ts'
import { getTestImage, makeTestFolders } from '../../host/test/support/vm.ts'
import { InstalledExample } from '../support/installed-example.ts'

const key = 'sk-of-the-test-0123456789'
let example: InstalledExample

beforeAll(async () => {
  await getTestImage()
  example = await InstalledExample.install('sandbox-tools')
})

afterAll(async () => await example[Symbol.asyncDispose]())

/** Counts words, looks for the placeholder and the key in files and environments of processes, and writes a file. */
const search = (pattern: string) => `grep -rsl "${pattern}" ~ /tmp /proc/[0-9]*/environ | wc -l`
const calls = [
  { name: 'bash', arguments: { command: 'wc -w < given.txt; id -un' } },
  // The brackets keep the words of the search itself from being found.
  {
    name: 'bash',
    arguments: { command: `${search('{{MODEL_KE[Y]}}')}; ${search(`${key.slice(0, -1)}[9]`)}` },
  },
  { name: 'write', arguments: { path: 'out/count.txt', content: '3 words\n' } },
]

/** Says what each call returned, so that the answer proves that it ran. */
function answer({ messages }: Asked): ServerReply {
  const results = messages.filter(({ role }) => role === 'tool').map(({ content }) => JSON.stringify(content))
  const next = calls[results.length]
  if (next === undefined) return reply({ text: `Seen: ${results.join(' | ')}` })
  return reply({ calls: [{ ...next, id: `call-${results.length}` }] })
}

/** The model server as `https://models.test`, through the proxy of the user; and the configuration that trusts it. */
async function serveByTls(port: number) {
  const { cert, key, caFile } = await makeAuthority('DNS:models.test')
  const sockets = new Set<Socket>()
  const server = createServer({ cert, key }, (socket) => {
    const onward = connect(port, '127.0.0.1')
    for (const one of [socket, onward]) {
      sockets.add(one)
      one.on('error', () => undefined)
    }
    socket.pipe(onward).pipe(socket)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const proxy = await startConnectProxy({
    leadsTo: { host: '127.0.0.1', port: (server.address() as AddressInfo).port },
  })
  const config = await temporaryFolder('config')
  await mkdir(path.join(config, 'caisson'))
  const network = `[network]\nca = "${caFile}"\nproxy = "http://127.0.0.1:${proxy.port}"\n`
  await writeFile(path.join(config, 'caisson/config.toml'), network, { mode: 0o600 })
  return {
    config,
    asked: proxy.asked,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await proxy[Symbol.asyncDispose]()
    },
  }
}

it('lets the coding agent Pi work in a VM that never holds the key of its model [V.12 G.04]', async () => {
  using home = makeTestFolders()
  await using model = await startModelServer(answer)
  await using tls = await serveByTls(Number(new URL(model.baseUrl).port))
  const workspace = path.join(await temporaryFolder('coding-agent'), 'work')
  await mkdir(workspace)
  await writeFile(path.join(workspace, 'given.txt'), 'one two three\n')
  const env = {
    CAISSON_HOME: home.folders.home,
    XDG_CONFIG_HOME: tls.config,
    OPENAI_BASE_URL: 'https://models.test/v1',
    OPENAI_API_KEY: key,
    OPENAI_MODEL: 'scripted',
  }
  const printed = await example.run('coding-agent.ts', [workspace, 'Count the words'], { env, input: 'y\n' })
  expect(printed).toContain('Seen: ')
  expect(printed).toContain('3\\nwork\\n')
  expect(printed.split(' | ')[1]).toContain('1\\n0\\n')
  expect(printed).toContain('Applied')
  expect(await readFile(path.join(workspace, 'out/count.txt'), 'utf8')).toBe('3 words\n')
  expect(model.asked.map(({ headers }) => headers.authorization)).toEqual(
    calls.concat(calls.slice(-1)).map(() => `Bearer ${key}`),
  )
  expect(model.asked[0]?.tools.map(({ function: { name } }) => name)).toContain('bash')
  expect(new Set(tls.asked)).toEqual(new Set(['models.test:443']))
  expect(await readdir(path.join(home.folders.home, 'vms')).catch(() => [])).toEqual([])
})
