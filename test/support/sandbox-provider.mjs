// Uses the sandbox provider of examples/sandbox-tools as the harness of the AI SDK does, and prints what it saw as JSON.
import { pathToFileURL } from 'node:url'
import { Host } from 'caisson'

const [example, workspace] = process.argv.slice(2)
const { caissonSandbox } = await import(pathToFileURL(example))

async function textOf(stream) {
  return await new Response(stream).text()
}

async function killedSoon(session) {
  const process = await session.spawn({ command: 'echo begun; sleep 1234' })
  const reader = process.stdout.getReader()
  const first = new TextDecoder().decode((await reader.read()).value)
  await process.kill()
  return [first, await process.wait(), (await session.run({ command: 'pgrep -fc "sleep 1234$"' })).stdout]
}

async function reach(session) {
  const server =
    "require('http').createServer((_, r) => r.end('from the VM')).listen(4000, '127.0.0.1', () => console.log('up'))"
  const process = await session.spawn({ command: `exec node -e "${server}"` })
  const reader = process.stdout.getReader()
  await reader.read()
  const { url } = await session.getPortEndpoint({ port: 4000 })
  const text = await (await fetch(url)).text()
  await process.kill()
  return text
}

async function use(session) {
  const bytes = Uint8Array.from([0, 255, 10, 128])
  await session.writeBinaryFile({ path: '/mnt/workspace/deep/a.bin', content: bytes })
  await session.writeTextFile({ path: '/tmp/of-a-tool/lines', content: 'one\ntwo\nthree\n' })
  await session.writeFile({ path: 'streamed', content: new Blob(['streamed']).stream() })
  const spawned = await session.spawn({
    command: 'cat; echo "$NAME $PWD"; exit 3',
    env: { NAME: 'x' },
    workingDirectory: 'deep',
  })
  return {
    given: await session.readTextFile({ path: 'given.txt' }),
    bytes: [...(await session.readBinaryFile({ path: 'deep/a.bin' }))],
    lines: await session.readTextFile({ path: '/tmp/of-a-tool/lines', startLine: 2, endLine: 9 }),
    streamed: await textOf(await session.readFile({ path: 'streamed' })),
    missing: [await session.readFile({ path: 'no' }), await session.readBinaryFile({ path: '/tmp/no' })],
    refused: await session
      .writeTextFile({ path: '/etc/passwd', content: 'x' })
      .catch(({ message }) => message),
    ran: await session.run({ command: 'echo out; echo err >&2; exit 7' }),
    spawned: [await textOf(spawned.stdout), await spawned.wait()],
    killed: await killedSoon(session),
    port: await reach(session),
    otherPort: await session.getPortUrl({ port: 22 }).catch(({ message }) => message),
    aborted: await session
      .run({ command: 'sleep 1234', abortSignal: AbortSignal.timeout(500) })
      .catch(({ code }) => code),
  }
}

await using host = new Host()
const opened = []
const provider = caissonSandbox({ host, workspace, onSandbox: (sandbox) => opened.push(sandbox) })
const bootstrapped = []
const session = await provider.createSession({
  onFirstCreate: async (first) => void bootstrapped.push('stop' in first),
})
const seen = await use(session)
const changes = (await (await opened[0].changes()).review()).map(({ change, path }) => `${change} ${path}`)
await session.destroy()
await session.destroy()
console.log(JSON.stringify({ ...seen, bootstrapped, changes }))
