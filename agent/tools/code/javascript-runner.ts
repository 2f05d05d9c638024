/**
 * Runs JavaScript code without a file: Node takes it from standard input, as a module where it has the syntax of one. The
 * run's tools are functions of the global `tools`.
 */
import { channelVariable } from './program-channel.ts'

/** Runs before the code, and connects before it begins. Workers and forked processes have no connection. */
const PRELUDE = `
import { connect } from 'node:net'

class ToolError extends Error {
  constructor({ code, message, retryable }) {
    super(message)
    this.name = 'ToolError'
    this.code = code
    this.retryable = retryable
  }
}

async function openTools(place) {
  const [name, token] = place.split(' ')
  const socket = connect({ path: '\\0' + name })
  const waiting = new Map()
  const gone = { error: { code: 'unavailable', message: 'tools cannot be called any more', retryable: false } }
  let isOver = false
  let number = 0
  let rest = ''
  const settle = (id, { error, value }) => {
    const call = waiting.get(id)
    waiting.delete(id)
    if (waiting.size === 0) socket.unref()
    if (error === undefined) call?.resolve(value)
    else call?.reject(new ToolError(error))
  }
  const ask = (message) =>
    new Promise((resolve, reject) => {
      const id = ++number
      waiting.set(id, { resolve, reject })
      if (isOver) return settle(id, gone)
      socket.ref()
      socket.write(JSON.stringify({ id, ...message }) + '\\n')
    })
  socket.setEncoding('utf8')
  socket.on('data', (piece) => {
    const lines = (rest + piece).split('\\n')
    rest = lines.pop()
    for (const line of lines) {
      const { id, ...answer } = JSON.parse(line)
      settle(id, answer)
    }
  })
  socket.on('error', () => undefined)
  socket.on('close', () => {
    isOver = true
    for (const id of [...waiting.keys()]) settle(id, gone)
  })
  socket.write(token + '\\n')
  const specs = await ask({ list: true }).catch(() => [])
  const tools = { ToolError }
  for (const { name, doc } of specs) {
    const call = async (given = {}) => await ask({ tool: name, arguments: JSON.stringify(given) })
    tools[name] = Object.assign(Object.defineProperty(call, 'name', { value: name }), { doc })
  }
  return tools
}

const place = process.env.${channelVariable}
delete process.env.${channelVariable}
process.execArgv = []
if (place !== undefined) globalThis.tools = await openTools(place)
`

const preludeUrl = `data:text/javascript,${encodeURIComponent(PRELUDE)}`

/** The command that runs its standard input, with `args` as process.argv.slice(2). */
export function javascriptCommand(args: readonly string[]): string[] {
  // Without --input-type, which workers of the program would refuse.
  return ['node', `--import=${preludeUrl}`, '-', ...args]
}
