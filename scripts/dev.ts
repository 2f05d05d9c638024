/**
 * Watches this checkout: types and the fast tests of what changes, side by side.
 * usage: dev.ts [FILES…] — arguments go to vitest, such as a path or `-t ID`.
 */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

const filters = process.argv.slice(2)
const commands = [
  {
    name: 'types',
    args: ['node_modules/typescript/bin/tsc', '--noEmit', '--watch', '--preserveWatchOutput'],
  },
  {
    name: 'tests',
    args: [
      'node_modules/vitest/vitest.mjs',
      ...['--project', 'fast', '--watch', '--clearScreen=false'],
      // At first only what differs from the last commit; then what a saved file changes.
      ...(filters.length > 0 ? filters : ['--changed']),
    ],
  },
]

const children = commands.map(({ name, args }) => {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  for (const output of [child.stdout, child.stderr])
    createInterface({ input: output }).on('line', (line) => console.log(`${name} │ ${line}`))
  child.on('error', (error) => console.error(`${name} │ ${error.message}`))
  child.on('exit', (code) => {
    if (stopping) return
    console.error(`${name} │ ended with ${code}`)
    process.exitCode = code === 0 ? 0 : 1
    stop()
  })
  return child
})

let stopping = false
function stop(): void {
  stopping = true
  for (const child of children) child.kill()
}
process.on('SIGINT', stop).on('SIGTERM', stop)
