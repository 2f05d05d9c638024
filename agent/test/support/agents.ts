/** Sub-agents for tests: views as copies of a folder, the real file tools over them, a scripted model that knows who asks. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, Script, ServerReply } from '#specs/testing/model-server.ts'
import type { HelperErrorCode } from '../../link/root-helper.ts'
import type { AgentRun } from '../../run/run.ts'
import { type AgentsParts, createAgents, type RunAgents } from '../../subagents/create-agents.ts'
import type { ViewSource } from '../../subagents/views.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import type { Tool } from '../../tool-calls/tool.ts'
import { createAskTool } from '../../tools/ask-user.ts'
import { createFileTools } from '../../tools/file-tools.ts'
import { createAgentTools } from '../../tools/run-agents.ts'
import { makeRun, noteTools, silentLogger, type TestRun, type TestRunOptions } from './run.ts'
import { runInFolder } from './tools.ts'

const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

export interface AgentsBench extends Disposable {
  readonly test: TestRun
  readonly run: AgentRun
  readonly agents: RunAgents
  /** The parent's workspace. */
  readonly root: string
  /** Events of sub-agents, by path. */
  readonly heard: Map<string, AgentEvent[]>
  /** Views that are open now. */
  readonly open: Set<string>
  /** The next view is refused with this. */
  refuse(...codes: HelperErrorCode[]): void
}

/** Views as copies of `root`; what a helper of the guest does with overlays. */
export function folderViews(root: string, place: string): ViewSource & Pick<AgentsBench, 'open' | 'refuse'> {
  const open = new Set<string>()
  const refusals: HelperErrorCode[] = []
  return {
    open,
    refuse: (...codes) => void refusals.push(...codes),
    openViews: (ids, source) => {
      const code = refusals.shift()
      if (code !== undefined)
        return Promise.resolve({ ok: false, error: { code, message: `no view: ${code}` } })
      const value = ids.map((id) => {
        const paths = { path: join(place, id), start: join(place, `${id}.start`), upper: join(place, 'none') }
        for (const copy of [paths.path, paths.start])
          execFileSync('cp', ['-a', source === undefined ? root : join(place, source), copy])
        open.add(id)
        return paths
      })
      return Promise.resolve({ ok: true, value })
    },
    closeViews: (ids) => {
      for (const id of ids) {
        open.delete(id)
        for (const name of [id, `${id}.start`]) rmSync(join(place, name), { recursive: true, force: true })
      }
      return Promise.resolve({ ok: true, value: undefined })
    },
  }
}

/** A root run over a folder, which may start sub-agents. */
export function makeAgents(
  options: TestRunOptions & { readonly files?: (root: string) => void } & Pick<
      AgentsParts,
      'vms' | 'sendView'
    >,
): AgentsBench {
  const place = mkdtempSync('/tmp/caisson-agents-')
  const root = join(place, 'workspace')
  mkdirSync(root)
  options.files?.(root)
  const views = folderViews(root, place)
  const waiting = noteTools().filter(({ name }) => name === 'wait_long')
  const toolsOver = (path: string): Tool[] => [
    ...createFileTools(runInFolder(path), { root: path, knownAs: root, owner }),
    ...waiting,
    createAskTool(),
  ]
  const registry = createRegistry([...toolsOver(root), ...createAgentTools()], {
    logger: silentLogger,
    cancelGraceMs: 50,
  })
  const test = makeRun({ registry, ...options })
  const heard = new Map<string, AgentEvent[]>()
  const parts: AgentsParts = {
    views,
    toolsFor: ({ path }) => toolsOver(path),
    reportFor: (agentPath) => ({
      event: (event) => {
        heard.set(agentPath, [...(heard.get(agentPath) ?? []), event])
        return Promise.resolve()
      },
      delta: () => undefined,
      turnOf: () => 1,
      sourceHeaders: () => ({}),
    }),
    root,
    owner,
    ...(options.vms === undefined ? {} : { vms: options.vms }),
    ...(options.sendView === undefined ? {} : { sendView: options.sendView }),
  }
  const agents = createAgents(test.run, parts)
  return {
    test,
    run: { ...test.run, agents },
    agents,
    root,
    heard,
    open: views.open,
    refuse: views.refuse,
    [Symbol.dispose]: () => rmSync(place, { recursive: true, force: true }),
  }
}

/** A model's server that answers each sub-agent from its own list, by the word in capitals with which its brief begins. */
export function byBrief(
  scripts: Readonly<Record<string, readonly (ServerReply | ((asked: Asked) => ServerReply))[]>>,
): Script {
  const turns = new Map<string, number>()
  return (asked) => {
    const user = asked.messages.find(({ role }) => role === 'user')?.content ?? ''
    const word = /<instructions>\n([A-Z]+)/.exec(user)?.[1] ?? 'ROOT'
    const turn = turns.get(word) ?? 0
    turns.set(word, turn + 1)
    const script = scripts[word] ?? []
    const chosen = script[Math.min(turn, script.length - 1)] ?? reply({ text: `${word} has no script` })
    return typeof chosen === 'function' ? chosen(asked) : chosen
  }
}

/** A reply that writes a file. */
export function write(path: string, content: string, text = ''): ServerReply {
  return reply({ text, calls: [{ id: 'call_1', name: 'write_file', arguments: { path, content } }] })
}
