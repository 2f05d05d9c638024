/**
 * Random tasks: a plan whose steps write files, run commands, order from a tool of the host, ask the person and start
 * sub-agents. The model reads from the instructions of a step what to call, so that any process can serve it; what the
 * workspace must have at the end follows from the task alone.
 */
import { reply } from '../../specs/testing/model-replies.ts'
import type { Asked, ServerReply } from '../../specs/testing/model-server.ts'
import type { Random } from './random.ts'

interface Call {
  readonly name: string
  readonly arguments: object
}

interface Step {
  readonly id: string
  readonly title: string
  readonly kind?: 'agent'
  readonly instructions: string
  readonly needs: readonly string[]
  readonly writes: readonly string[]
}

export interface SoakTask {
  readonly plan: { readonly goal: string; readonly steps: readonly Step[] }
  /** Content by path at the end. */
  readonly files: Readonly<Record<string, string>>
  readonly orders: readonly string[]
  readonly questions: number
}

const marker = /CALLS<([A-Za-z0-9+/=]*)>/

/** @param name unique in the soak */
export function drawTask(random: Random, name: string): SoakTask {
  const files: Record<string, string> = {}
  const orders: string[] = []
  const steps: Step[] = []
  let questions = 0
  const count = random.between(1, 4)
  for (let index = 0; index < count; index += 1) {
    const id = `step${index}`
    const isAgent = random.next() < 0.3
    const file = `${id}.txt`
    const calls: Call[] = []
    let content = ''
    for (let turn = random.between(1, 4); turn > 0; turn -= 1) {
      const line = `${name} ${id} ${turn}`
      const what = random.next()
      if (!isAgent && what < 0.15) {
        questions += 1
        calls.push({ name: 'ask_user', arguments: { kind: 'text', question: `Shall ${line} be?` } })
      } else if (!isAgent && what < 0.3) {
        orders.push(line)
        calls.push({ name: 'order_part', arguments: { id: line } })
      } else if (content === '') {
        content = `${line}\n`
        calls.push({ name: 'write_file', arguments: { path: file, content } })
      } else {
        content += `${line}\n`
        const wait = random.next() < 0.3 ? `; sleep 0.${random.between(1, 9)}` : ''
        calls.push({ name: 'run_bash', arguments: { command: `echo '${line}' >> ${file}${wait}` } })
      }
    }
    if (content !== '') files[file] = content
    // Half of them run side by side.
    const needs = index > 0 && random.next() < 0.5 ? [`step${index - 1}`] : []
    const kind = isAgent ? { kind: 'agent' as const } : {}
    steps.push({ id, title: id, ...kind, instructions: instruct(calls), needs, writes: [file] })
  }
  return { plan: { goal: `the task ${name}`, steps }, files, orders, questions }
}

function instruct(calls: readonly Call[]): string {
  return `CALLS<${Buffer.from(JSON.stringify(calls)).toString('base64')}>`
}

export function answer({ messages }: Asked): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const encoded = marker.exec(asked)?.[1] ?? ''
  const calls = JSON.parse(Buffer.from(encoded, 'base64').toString('utf8') || '[]') as Call[]
  const done = messages.filter(({ role }) => role === 'assistant').length
  const next = calls[done]
  if (next === undefined) return reply({ text: 'done' })
  return reply({
    calls: [{ id: `call-${done}`, name: next.name, arguments: JSON.stringify(next.arguments) }],
  })
}
