/**
 * The agent's process in the guest: opens the two ports, creates the tools over the workspace, and serves until it is
 * asked to end. An unhandled fault ends the process; PID 1 restarts it and keeps its last output.
 */
import { startDaemon } from './daemon.ts'
import { openHostTools } from './extensions/host-tools.ts'
import { createPortOpener } from './link/port.ts'
import { createHelper } from './link/root-helper.ts'
import { createMcpExtension } from './mcp/extension.ts'
import { createOwnTools } from './own-tools.ts'
import type { StreamOpener } from './proxy/egress-stream.ts'
import { createProgramNetwork } from './proxy/proxy.ts'
import { type AgentExits, readExits } from './restart-info.ts'
import { createCodeSearch } from './search/code-search.ts'
import { openSkills } from './skills/skill-catalog.ts'
import { createGatewayClient } from './tool-calls/gateway-client.ts'
import { openCodeFunctions } from './tools/code/functions.ts'
import { defaultRoot } from './workspace/file-access.ts'
import { describeWorkspace, readGuidance } from './workspace/listing.ts'
import { readWorkspacePicture } from './workspace/picture.ts'

/**
 * Serves until the process is asked to end; `start.ts` calls it once.
 * @param describeExits default: what PID 1 had recorded when this process began
 */
export function startAgent(describeExits?: () => AgentExits): void {
  const { CAISSON_HELPER, CAISSON_AGENT_EXITS } = process.env
  const helper = createHelper(CAISSON_HELPER)
  // Read once, not per session: nothing is added while this process lives.
  const exits = readExits(CAISSON_AGENT_EXITS)
  const http: StreamOpener = {
    openStream: (headers, options) => daemon.link.http.openStream(headers, options),
  }
  const network = createProgramNetwork(http)
  const gateway = createGatewayClient(() => daemon.link.http)
  const codeSearch = createCodeSearch({ gateway })
  const { tools, toolsOver } = createOwnTools({ helper, gateway, codeSearch, network })

  const daemon = startDaemon({
    openRpc: createPortOpener('caisson.rpc'),
    openHttp: createPortOpener('caisson.http'),
    // A person's shell uses the network the way programs do.
    root: {
      ...helper,
      openShell: async (request) => helper.openShell({ ...request, env: (await network.prepare()).env }),
    },
    tools,
    logFile: '/run/caisson/scratch/agent/run.jsonl',
    agents: {
      views: helper,
      toolsFor: ({ id, path }) => toolsOver({ root: path, knownAs: defaultRoot }, { view: id }),
    },
    extensions: [
      openHostTools,
      openCodeFunctions({ helper, network }),
      codeSearch.extension,
      createMcpExtension({ ...helper, network, http }),
    ],
    listWorkspace: (signal) => describeWorkspace(tools, signal),
    readGuidance: () => readGuidance(),
    readImage: (path) => readWorkspacePicture({}, path),
    openSkills: ({ skills }) => openSkills(skills),
    describeExits: describeExits ?? (() => exits),
  })

  process.once('SIGTERM', () => {
    daemon.close().then(
      () => process.exit(0),
      () => process.exit(1),
    )
  })
}
