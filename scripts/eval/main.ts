/** `npm run eval`: tasks with hidden checks, for any model. `docs/evaluate.md` says how to use it. */
import { runEval } from './commands.ts'

/** A terminal sends a signal to npm and to this process, and npm passes it on: that is one interruption. */
const sameInterruptionMs = 1_000

const [interrupted, endNow] = [new AbortController(), new AbortController()]
let interruptedAt = 0
const tell = (text: string): void => void process.stderr.write(`eval: ${text}\n`)
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(signal, () => {
    if (!interrupted.signal.aborted) {
      interruptedAt = performance.now()
      tell('cancels the attempts at work; once more ends their VMs at once')
      interrupted.abort()
    } else if (performance.now() - interruptedAt > sameInterruptionMs) endNow.abort()
  })
// A reader that is gone does not end the attempts.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)

process.exitCode = await runEval(process.argv.slice(2), {
  out: (text) => void process.stdout.write(text),
  ...{ tell, env: process.env, signal: interrupted.signal, endNow: endNow.signal },
  // npm runs scripts in the folder of the package.
  directory: process.env.INIT_CWD ?? process.cwd(),
})
