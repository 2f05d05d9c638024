// The coding agent Pi works in a Caisson VM on a copy of a directory. It asks its model through the gateway of Caisson, which
// puts in the key: the VM has a placeholder.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { HarnessV1NetworkSandboxSession } from '@ai-sdk/harness'
import { Host, type Sandbox } from 'caisson'
import { caissonSandbox } from './ai-sdk-sandbox.ts'
import { applyChanges } from './tools.ts'

const piFolder = fileURLToPath(
  new URL('../..', import.meta.resolve('@earendil-works/pi-coding-agent/rpc-entry')),
)
const inVm = '/home/work/pi'
const secretName = 'MODEL_KEY'
const archiveMaxBytes = 64 * 1024 ** 2

/** What Pi needs to run: one program, without the packages that it was made of. */
async function installPi(session: HarnessV1NetworkSandboxSession): Promise<void> {
  const packed = ['-czf', '-', '-C', piFolder, 'package.json', 'dist']
  const { stdout } = await promisify(execFile)('tar', packed, {
    encoding: 'buffer',
    maxBuffer: archiveMaxBytes,
  })
  await session.writeBinaryFile({ path: '/tmp/pi.tgz', content: stdout })
  const unpack = `mkdir -p ${inVm} && tar -xzf /tmp/pi.tgz -C ${inVm} && rm /tmp/pi.tgz`
  const { exitCode, stderr } = await session.run({ command: unpack })
  if (exitCode !== 0) throw new Error(`Pi cannot be unpacked in the VM: ${stderr}`)
}

/** Pi asks by http, and the host makes the request by https with the key in it. */
async function configurePi(
  session: HarnessV1NetworkSandboxSession,
  { host, pathname }: URL,
  model: string,
): Promise<void> {
  const provider = {
    baseUrl: `http://${host}${pathname}`,
    api: 'openai-completions',
    apiKey: `{{${secretName}}}`,
    headers: { 'caisson-upgrade': 'https' },
    models: [{ id: model }],
  }
  const content = JSON.stringify({ providers: { caisson: provider } })
  await session.writeTextFile({ path: '/home/work/.pi/agent/models.json', content })
}

async function main(): Promise<void> {
  const [workspace, prompt] = process.argv.slice(2)
  const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey, OPENAI_MODEL: model } = process.env
  if (!workspace || !prompt || !baseURL?.startsWith('https:') || !apiKey || !model)
    throw new Error(
      'Pass a directory and a prompt, and set OPENAI_BASE_URL (https), OPENAI_API_KEY and OPENAI_MODEL.',
    )
  const server = new URL(baseURL)
  await using host = new Host()
  host.secrets.set(secretName, { hosts: [server.hostname], value: apiKey })
  let sandbox: Sandbox | undefined
  const provider = caissonSandbox({
    host,
    workspace,
    secrets: [secretName],
    egress: { rules: [{ effect: 'allow', host: server.hostname }] },
    onSandbox: (opened) => {
      sandbox = opened
    },
  })
  const session = await provider.createSession({ onFirstCreate: async () => undefined })
  try {
    await installPi(session)
    await configurePi(session, server, model)
    const process = await session.spawn({
      command: `node ${inVm}/dist/bundle/cli.js --offline --no-session --provider caisson --model "$MODEL" -p -- "$PROMPT"`,
      env: { MODEL: model, PROMPT: prompt },
    })
    const print = new WritableStream<Uint8Array>({
      write: (bytes) => void globalThis.process.stdout.write(bytes),
    })
    const complain = new WritableStream<Uint8Array>({
      write: (bytes) => void globalThis.process.stderr.write(bytes),
    })
    await Promise.all([process.stdout.pipeTo(print), process.stderr.pipeTo(complain)])
    const { exitCode } = await process.wait()
    if (exitCode !== 0) throw new Error(`Pi ended with ${exitCode}`)
    if (sandbox !== undefined) await applyChanges(sandbox, workspace)
  } finally {
    await session.destroy()
  }
}

await main()
