// The web tools from inside a real VM, with a secret: it reaches its server, and is nowhere that the guest or the run keeps.
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { makeAuthority } from '../support/authority.ts'
import { testBench } from '../support/runs.ts'
import { searchFiles } from '../support/search-files.ts'

const SECRET = 'ghp_vm0123456789abcdefABCDEFghij'
/** The guest has this in its memory, so the search would find the secret as well. */
const KNOWN = 'the-tides-of-the-known-word'

/** A server that tells everybody what it was sent. */
async function startEcho() {
  const authority = await makeAuthority('IP:127.0.0.1')
  const sent: (string | undefined)[] = []
  const server = createServer(authority, (request, response) => {
    sent.push(request.headers.authorization)
    response.writeHead(200, { 'content-type': 'text/html' })
    response.end(`<title>Tides</title><p>${KNOWN}: you sent ${request.headers.authorization ?? 'nothing'}`)
  })
  onTestFinished(() => void server.close())
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return { authority, sent, port: (server.address() as AddressInfo).port }
}

async function openBench(more: { readonly env?: Record<string, string> } = {}) {
  const echo = await startEcho()
  const config = await temporaryFolder('config')
  await mkdir(path.join(config, 'caisson'))
  await writeFile(path.join(config, 'secret'), `${SECRET}\n`, { mode: 0o600 })
  await writeFile(
    path.join(config, 'caisson/config.toml'),
    `[network]
ca = "${echo.authority.caFile}"
[secrets.TOKEN]
from = { file = "${path.join(config, 'secret')}" }
hosts = ["127.0.0.1"]
[egress]
rules = [{ effect = "allow", host = "127.0.0.1", ports = [${echo.port}] }]
`,
    { mode: 0o600 },
  )
  const bench = await testBench({ 'a.txt': 'a\n' }, { XDG_CONFIG_HOME: config, ...more.env })
  return { ...echo, bench }
}

const curl = (port: number) =>
  `curl -sS --noproxy '' -H 'caisson-upgrade: https' -H 'authorization: Bearer {{TOKEN}}' http://127.0.0.1:${port}/`

describe('the web from inside a VM', () => {
  it('is read with a secret that no part of the guest and of the run ever holds [S1.04] [G.01] [G.04]', async () => {
    const plan = {
      goal: 'g',
      steps: [{ id: 'one', title: 'One', instructions: 'do', needs: [], writes: [] }],
    }
    await using model = await startModelServer(({ messages, tools }) => {
      if (tools.some((tool) => tool.function.name === 'submit_plan'))
        return reply({ calls: [{ id: 'plan00001', name: 'submit_plan', arguments: plan }] })
      const done = messages.filter(({ role }) => role === 'tool').length
      const headers = { authorization: 'Bearer {{TOKEN}}' }
      const calls = [
        { name: 'web_fetch', arguments: { url: `https://127.0.0.1:${port}/`, headers } },
        { name: 'web_fetch', arguments: { url: 'https://elsewhere.test/', headers } },
        // A program: the host makes its request by https. This machine's loopback is meant, not the guest's.
        { name: 'run_bash', arguments: { command: curl(port) } },
      ]
      const call = calls[done]
      return call === undefined
        ? reply({ text: 'done' })
        : reply({ calls: [{ id: `call0000${done}`, ...call }] })
    })
    const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'test/model' }
    const { bench, sent, port } = await openBench({ env })
    const { run, events, state } = await bench.run('Read the tides', { vm: { keep: true } })
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(sent).toEqual([`Bearer ${SECRET}`, `Bearer ${SECRET}`])
    expect(JSON.stringify(model.asked[0]?.body)).toContain('{{TOKEN}}: for 127.0.0.1')

    const outputs = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : []))
    expect(outputs[0]).toMatch(/<web-content>[\s\S]*you sent Bearer \[redacted\][\s\S]*<\/web-content>/)
    expect(outputs[1]).toMatch(/\{\{TOKEN\}\} is bound to 127\.0\.0\.1/)
    expect(outputs[2]).toContain('you sent Bearer [redacted]')
    const target = `GET https://127.0.0.1:${port}/`
    expect(events.filter((event) => event.type === 'egress-end')).toMatchObject([
      { kind: 'fetch', secrets: ['TOKEN'], target },
      { kind: 'http', secrets: ['TOKEN'], target },
    ])
    const found = await searchFiles(path.join(bench.home, 'runs', run.id), [
      KNOWN,
      SECRET,
      SECRET.slice(0, 20),
    ])
    // The search sees into the guest's memory, where what the agent read still lies.
    expect(found.get(KNOWN)).toContain('kept/memory')
    expect(found.get(SECRET)).toEqual([])
    expect(found.get(SECRET.slice(0, 20))).toEqual([])
  })

  it('is saved to a file by the offline model, and the run repeated without it [S1.04] [S4.06] [G.06]', async () => {
    const { bench, port } = await openBench()
    const prompt = `Save https://127.0.0.1:${port}/ to page.md`
    const { run, state } = await bench.run(prompt)
    expect(state.end).toMatchObject({ outcome: 'completed' })
    await (await bench.host.changes(run.id)).apply('all')
    expect(await readFile(path.join(bench.workspace, 'page.md'), 'utf8')).toBe(
      `# Tides\n\n${KNOWN}: you sent nothing\n`,
    )
    await (await bench.host.changes(run.id)).undo()
    const again = await bench.run(prompt, { replay: run.id })
    expect(again.state.end).toMatchObject({ outcome: 'completed' })
    expect(again.events.filter(({ type }) => type === 'egress-end')).toEqual([])
  })
})
