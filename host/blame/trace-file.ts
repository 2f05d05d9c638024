/**
 * Follows one file through the journal of a run: what each agent's calls, renames, sub-agents and new beginnings made of
 * it. Everything that an agent reports is a claim: what does not fit is a suspicion, never an error.
 */
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { toolKindOf } from '#specs/protocol/tool-names.ts'
import { readCallDiff } from './call-diff.ts'
import {
  type CallRef,
  emptyView,
  type FileView,
  movedView,
  type Suspects,
  withDiff,
  withoutFile,
  withSuspect,
} from './file-view.ts'
import { type Move, movesOf, patchMoves } from './moves.ts'

type EventOf<T extends JournalEvent['event']['type']> = Extract<JournalEvent['event'], { type: T }>

/** Tools of the agent that write no file of the workspace themselves, although their kind does not say so. */
const harmless: ReadonlySet<string> = new Set([
  ...['ask_user', 'governance_note', 'math', 'remember', 'request_access', 'spawn_agent', 'use_mcp_server'],
])
/** Lines that are copied while the journal is followed; each edit copies its file. */
const workMaxLines = 400_000_000
const openMaxCalls = 10_000

/** The files of one agent, by path, and of a sub-agent what its parent had when it began. */
interface AgentFiles {
  readonly files: ReadonlyMap<string, FileView>
  readonly copied: ReadonlyMap<string, FileView> | null
}

interface OpenCall {
  readonly ref: CallRef
  readonly moves: readonly Move[]
  readonly arguments: string
}

export class FileTrace {
  readonly #start: ReadonlyMap<string, AgentFiles>
  #agents: Map<string, AgentFiles>
  #checkpoint: { readonly id: string; readonly agents: ReadonlyMap<string, AgentFiles> } | null = null
  readonly #open = new Map<string, OpenCall>()
  #work = 0

  /** @param start the followed files as they went into the VM, by path */
  constructor(start: ReadonlyMap<string, FileView>) {
    this.#start = new Map([['root', { files: start, copied: null }]])
    this.#agents = new Map(this.#start)
  }

  /** The file as the run's agent saw it last. */
  at(path: string): FileView {
    return this.#agents.get('root')?.files.get(path) ?? emptyView
  }

  /** @throws {CaissonError} `not_possible_now` when the journal has too many edits of the file */
  next(line: JournalEvent): void {
    if (line.source === 'agent') this.#agentEvent(line.agentPath, line)
    else this.#hostEvent(line.event)
  }

  #hostEvent(event: HostEvent): void {
    switch (event.type) {
      case 'checkpoint':
        this.#checkpoint = { id: event.checkpointId, agents: new Map(this.#agents) }
        break
      case 'run-resume':
        this.#restart(event.checkpointId)
        break
      case 'vm-access':
        // A port that is forwarded may belong to a program that edits files.
        for (const agentPath of this.#agents.keys()) this.#suspect(agentPath, null)
        break
      case 'host-tool-start': {
        const call = this.#open.get(keyOf(event.agentPath, event.callId))
        if (call !== undefined) call.ref.isHost = true
        break
      }
    }
  }

  #agentEvent(agentPath: string, { seq, event }: JournalEvent): void {
    switch (event.type) {
      case 'tool-start':
        this.#callStarted(agentPath, seq, event)
        break
      case 'tool-end':
        this.#callEnded(agentPath, seq, event)
        break
      case 'agent-start': {
        const { files } = this.#filesOf(parentOf(agentPath))
        this.#agents.set(agentPath, { files, copied: files })
        break
      }
      case 'agent-end':
        this.#agentEnded(agentPath, event)
        break
    }
  }

  /** Everything after the checkpoint is done again, in a new VM. */
  #restart(checkpointId: string | null): void {
    const isKnown = this.#checkpoint !== null && this.#checkpoint.id === checkpointId
    if (!isKnown) this.#checkpoint = null
    this.#agents = new Map(this.#checkpoint?.agents ?? this.#start)
    this.#open.clear()
  }

  #callStarted(agentPath: string, seq: number, event: EventOf<'tool-start'>): void {
    const { callId, tool, stepId } = event
    const ref: CallRef = { agentPath, callId, stepId, tool, startSeq: seq }
    const kind = event.kind ?? toolKindOf(tool)
    const moves = patchMoves(tool, event.arguments)
    const text = tool === 'take_agent_file' ? event.arguments : ''
    if (this.#open.size < openMaxCalls)
      this.#open.set(keyOf(agentPath, callId), { ref, moves, arguments: text })
    if ((kind === 'execute' || kind === 'other') && !harmless.has(tool)) this.#suspect(agentPath, ref)
  }

  #callEnded(agentPath: string, seq: number, event: EventOf<'tool-end'>): void {
    const key = keyOf(agentPath, event.callId)
    const call = this.#open.get(key)
    this.#open.delete(key)
    if (call === undefined || call.ref.tool !== event.tool) return
    const { ref } = call
    ref.endSeq = seq
    const kind = toolKindOf(event.tool)
    const { writes = [], diffs = [] } = event
    if (event.error === undefined)
      for (const move of movesOf(event.tool, writes, call.moves)) this.#move(agentPath, move, ref)
    const taken = this.#taken(agentPath, call)
    for (const path of this.#filesOf(agentPath).files.keys()) {
      const diff = diffs.find((one) => one.path === path)
      const isWritten = writes.some((written) => written === path || path.startsWith(`${written}/`))
      if (diff !== undefined) this.#edit(agentPath, path, (view) => withDiff(view, readCallDiff(diff), ref))
      else if (!isWritten) continue
      else if (kind === 'delete')
        this.#edit(agentPath, path, (view) => withoutFile(view, { kind: 'call', call: ref }))
      else if (taken?.path === path) this.#edit(agentPath, path, () => taken.view)
      // What its diff does not show because there was no room for it, or a tool that reports none.
      else if (kind !== 'move' && !call.moves.some(({ to, from }) => to === path || from === path))
        this.#edit(agentPath, path, (view) => withSuspect(view, ref))
    }
  }

  #move(agentPath: string, { from, to }: Move, by: CallRef): void {
    const before = this.#filesOf(agentPath).files
    for (const path of before.keys()) {
      const rest = path === to ? '' : path.startsWith(`${to}/`) ? path.slice(to.length) : undefined
      const source = rest === undefined ? undefined : before.get(`${from}${rest}`)
      if (source !== undefined) this.#edit(agentPath, path, (view) => movedView(view, source, by))
    }
    for (const path of before.keys())
      if (path === from || path.startsWith(`${from}/`))
        this.#edit(agentPath, path, (view) => withoutFile(view, { kind: 'call', call: by }))
  }

  /** The file of a sub-agent that its parent takes instead of its own. */
  #taken(agentPath: string, call: OpenCall): { readonly path: string; readonly view: FileView } | undefined {
    if (call.arguments === '') return undefined
    const { agent, path } = readTake(call.arguments)
    const child = this.#agents.get(agent) ?? this.#agents.get(`${agentPath}/${agent}`)
    const view = child?.files.get(path)
    return view === undefined ? undefined : { path, view }
  }

  #agentEnded(agentPath: string, { merged, conflicts }: EventOf<'agent-end'>): void {
    const child = this.#agents.get(agentPath)
    if (child === undefined || child.copied === null || merged === 0) return
    const parent = parentOf(agentPath)
    for (const [path, view] of child.files) {
      const copied = child.copied.get(path)
      if (copied === undefined || copied === view || isNamed(path, conflicts)) continue
      this.#edit(parent, path, (current) => mergedView(current, copied, view))
    }
  }

  #suspect(agentPath: string, who: CallRef | null): void {
    for (const path of this.#filesOf(agentPath).files.keys())
      this.#edit(agentPath, path, (view) => withSuspect(view, who))
  }

  #edit(agentPath: string, path: string, change: (view: FileView) => FileView): void {
    const { files, copied } = this.#filesOf(agentPath)
    const before = files.get(path) ?? emptyView
    const view = change(before)
    if (view.lines !== before.lines) this.#work += before.lines.length + view.lines.length
    if (this.#work > workMaxLines)
      throw new CaissonError('not_possible_now', 'the run has too many edits of this file to follow them')
    this.#agents.set(agentPath, { files: new Map(files).set(path, view), copied })
  }

  /** Of an agent that never began, those of its parent. */
  #filesOf(agentPath: string): AgentFiles {
    const own = this.#agents.get(agentPath)
    if (own !== undefined) return own
    const { files } = this.#filesOf(parentOf(agentPath))
    return { files, copied: files }
  }
}

/** What a sub-agent's file makes of its parent's: the merge takes the file whole, from one of them. */
function mergedView(current: FileView, copied: FileView, child: FileView): FileView {
  const isChanged = child.lines !== copied.lines || child.gone !== copied.gone
  const taken = isChanged ? child : current
  const others = isChanged ? current : child
  return { ...taken, suspects: joined(taken.suspects, others.suspects, copied.suspects) }
}

/** Suspects of one, with those that another got since both had `common`. */
function joined(one: Suspects | null, other: Suspects | null, common: Suspects | null): Suspects | null {
  const since: (CallRef | null)[] = []
  for (let at = other; at !== null && at !== common; at = at.before) since.push(at.who)
  return since.reduceRight<Suspects | null>((before, who) => ({ who, before }), one)
}

/** Names are cut at the length of a line. */
function isNamed(path: string, names: readonly string[]): boolean {
  if (path.length < limits.lineMaxChars) return names.includes(path)
  const head = path.slice(0, limits.lineMaxChars - 10)
  return names.some((name) => name.startsWith(head))
}

function readTake(text: string): { readonly agent: string; readonly path: string } {
  try {
    const given: unknown = JSON.parse(text)
    const { agent, path } = Object(given) as Readonly<Record<string, unknown>>
    return { agent: String(agent), path: String(path).replace(/^(\.\/)+/, '') }
  } catch {
    return { agent: '', path: '' }
  }
}

function parentOf(agentPath: string): string {
  const at = agentPath.lastIndexOf('/')
  return at === -1 ? 'root' : agentPath.slice(0, at)
}

export function keyOf(agentPath: string, callId: string): string {
  return `${agentPath} ${callId}`
}
