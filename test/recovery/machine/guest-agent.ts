/** The agent as the machine of the tests runs it: what `agent/main.ts` starts, over sockets and folders of the machine. */
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import { startDaemon } from '../../../agent/daemon.ts'
import { openHostTools } from '../../../agent/extensions/host-tools.ts'
import { createHelper } from '../../../agent/link/root-helper.ts'
import { createMcpExtension } from '../../../agent/mcp/extension.ts'
import type { StreamOpener } from '../../../agent/proxy/egress-stream.ts'
import { createProgramNetwork } from '../../../agent/proxy/proxy.ts'
import { readExits } from '../../../agent/restart-info.ts'
import type { Tool } from '../../../agent/tool-calls/tool.ts'
import { createAskTool } from '../../../agent/tools/ask-user.ts'
import { type CodeToolsOptions, createCodeTools, createRunSandboxed } from '../../../agent/tools/code/code.ts'
import { openCodeFunctions } from '../../../agent/tools/code/functions.ts'
import { createFileTools, type FileToolsOptions } from '../../../agent/tools/file-tools.ts'
import { createOutputTool } from '../../../agent/tools/read-output.ts'
import { createRevisePlanTool } from '../../../agent/tools/revise-plan.ts'
import { createAgentTools } from '../../../agent/tools/run-agents.ts'
import { describeWorkspace } from '../../../agent/workspace/listing.ts'
import { readWorkspacePicture } from '../../../agent/workspace/picture.ts'

const guestRoot = '/mnt/workspace'
const guestProxy = '3128'

export async function startAgent(): Promise<void> {
  // An agent ends with its machine, also one that has no port open yet.
  process.stdin.resume().once('end', () => process.exit())
  const { CAISSON_PLACE: place = '', CAISSON_HELPER, CAISSON_AGENT_EXITS } = process.env
  const helper = createHelper(CAISSON_HELPER)
  const workspace = path.join(place, 'disk', 'workspace')
  const base = path.join(place, 'base')
  const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  const http: StreamOpener = {
    openStream: (headers, options) => daemon.link.http.openStream(headers, options),
  }
  const network = await openNetwork(http)
  const toolsOver = (files: FileToolsOptions, programs: CodeToolsOptions): Tool[] => [
    ...createFileTools(createRunSandboxed(helper, programs), { owner, knownAs: guestRoot, ...files }),
    ...createCodeTools(helper, { network, ...programs }),
    createAskTool(),
    createOutputTool(),
  ]
  const tools = [...toolsOver({ root: workspace }, {}), createRevisePlanTool(), ...createAgentTools()]
  const daemon = startDaemon({
    openRpc: () => openPort(path.join(place, 'rpc')),
    openHttp: () => openPort(path.join(place, 'http')),
    root: helper,
    tools,
    logFile: path.join(place, 'disk', 'agent', 'run.jsonl'),
    agents: {
      views: helper,
      toolsFor: ({ id, path: view }) => toolsOver({ root: view }, { view: id }),
      root: workspace,
      owner,
    },
    extensions: [
      openHostTools,
      openCodeFunctions({ helper }),
      createMcpExtension({ ...helper, network, http }),
    ],
    listWorkspace: (signal) => describeWorkspace(tools, signal),
    readImage: (file) => readWorkspacePicture({ root: workspace }, file),
    describeExits: () => readExits(CAISSON_AGENT_EXITS),
    collect: { merged: workspace, base, upper: path.join(place, 'none') },
  })
}

async function openPort(socket: string): Promise<Socket> {
  const opened = connect(socket)
  await new Promise<void>((resolve, reject) => opened.once('connect', resolve).once('error', reject))
  return opened
}

/**
 * A guest has the proxy's port to itself; agents on one machine need one each. The ports are below those
 * that the kernel gives out: another process could take one of these before the proxy listens.
 */
async function openNetwork(http: StreamOpener): Promise<ReturnType<typeof createProgramNetwork>> {
  let port = randomPort()
  let network = createProgramNetwork(http, port)
  return {
    watch: () => network.watch(),
    prepare: async () => {
      let prepared = await network.prepare()
      for (let tries = 0; prepared.problem !== null && tries < 20; tries += 1) {
        port = randomPort()
        network = createProgramNetwork(http, port)
        prepared = await network.prepare()
      }
      const { env, problem } = prepared
      const own = Object.entries(env).map(([name, value]) => [name, value.replace(guestProxy, `${port}`)])
      return { env: Object.fromEntries(own) as Record<string, string>, problem }
    },
  }
}

function randomPort(): number {
  return 20_000 + Math.floor(Math.random() * 10_000)
}
