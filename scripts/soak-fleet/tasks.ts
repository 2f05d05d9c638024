/**
 * Random tasks of a fleet: plans whose steps write files, run commands, ask people, and order at a server outside, each order
 * under a key of its own. The model of `soak/tasks.ts` reads from a step's instructions what to call.
 */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Random } from '../soak/random.ts'

interface Step {
  readonly id: string
  readonly title: string
  readonly instructions: string
  readonly needs: readonly string[]
  readonly writes: readonly string[]
}

export interface FleetTask {
  readonly name: string
  readonly plan: { readonly goal: string; readonly steps: readonly Step[] }
  /** Content by path at the end. */
  readonly files: Readonly<Record<string, string>>
  /** Keys of its orders. */
  readonly orders: readonly string[]
  readonly questions: number
}

/** Receives orders, each as `PUT /KEY`. */
export class Outside implements AsyncDisposable {
  readonly port: number
  /** How often each key came. */
  readonly orders: ReadonlyMap<string, number>
  readonly #server: Server

  private constructor(server: Server, orders: ReadonlyMap<string, number>) {
    this.#server = server
    this.orders = orders
    this.port = (server.address() as AddressInfo).port
  }

  static async open(): Promise<Outside> {
    const orders = new Map<string, number>()
    const server = createServer((request, response) => {
      const key = decodeURIComponent(request.url ?? '').slice(1)
      orders.set(key, (orders.get(key) ?? 0) + 1)
      response.end(`ordered ${key}\n`)
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new Outside(server, orders)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

/** @param name unique in the soak: digits and letters @param port of {@link Outside} */
export function drawTask(random: Random, name: string, port: number): FleetTask {
  const files: Record<string, string> = {}
  const orders: string[] = []
  const steps: Step[] = []
  let questions = 0
  const count = random.between(1, 3)
  for (let index = 0; index < count; index += 1) {
    const id = `step${index}`
    const file = `${id}.txt`
    const calls: { name: string; arguments: object }[] = []
    for (let turn = random.between(1, 4); turn > 0; turn -= 1) {
      const line = `${name} ${id} ${turn}`
      const what = random.next()
      if (what < 0.25) {
        questions += 1
        calls.push({ name: 'ask_user', arguments: { kind: 'text', question: `Shall ${line} be?` } })
      } else if (what < 0.5) {
        const key = `${name}-${id}-${turn}`
        orders.push(key)
        calls.push({ name: 'run_bash', arguments: { command: putOrder(key, port) } })
      } else {
        files[file] = `${files[file] ?? ''}${line}\n`
        const command = `echo '${line}' >> ${file}; sleep 0.${random.between(1, 9)}`
        calls.push({ name: 'run_bash', arguments: { command } })
      }
    }
    const needs = index > 0 ? [`step${index - 1}`] : []
    steps.push({ id, title: id, instructions: instruct(calls), needs, writes: [file] })
  }
  return { name, plan: { goal: `the task ${name}`, steps }, files, orders, questions }
}

function instruct(calls: readonly object[]): string {
  return `CALLS<${Buffer.from(JSON.stringify(calls)).toString('base64')}>`
}

/** Through the proxy of the guest, by the shell alone. */
function putOrder(key: string, port: number): string {
  const head = `PUT http://127.0.0.1:${port}/${key} HTTP/1.1\\r\\nhost: 127.0.0.1:${port}\\r\\n`
  return [
    `address=\${http_proxy#http://}; address=\${address%/}`,
    `exec 3<>/dev/tcp/\${address%:*}/\${address#*:}`,
    `printf '${head}content-length: 0\\r\\nconnection: close\\r\\n\\r\\n' >&3`,
    `grep -o 'ordered ${key}' <&3`,
  ].join('; ')
}
