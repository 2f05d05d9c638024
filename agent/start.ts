/**
 * The first file that Node runs in the guest: runs the bundled agent `main.js` beside it with V8's code cache from
 * build time. Without a cache for this Node version, or when V8 rejects it, V8 compiles the bundle and the console
 * says so.
 */
import { readFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { Script } from 'node:vm'

/** Of the agent's entry. */
interface Exports {
  startAgent(): void | Promise<void>
}
/** The bundle is the body of such a function; it stores the exports in `module.exports`. */
type Bundle = (module: { exports: Exports }, exports: object, load: NodeJS.Require) => void

const filename = `${__dirname}/main.js`
const cache = `${__dirname}/main-${process.version}-${process.arch}.cache`
const script = new Script(readFileSync(filename, 'utf8'), { filename, ...readCache() })
if (script.cachedDataRejected !== false) {
  const seen = script.cachedDataRejected === undefined ? 'no such file' : 'that V8 refuses it'
  process.stderr.write(`agent: the start takes longer: expected compiled code in ${cache}, saw ${seen}\n`)
}
setUpV8()
const bundle = { exports: {} as Exports }
const run = script.runInThisContext() as Bundle
run(bundle, bundle.exports, require)
void bundle.exports.startAgent()

/**
 * Lets functions run in V8's interpreter until they are really hot, and then in optimized code. A copy of this process
 * begins on an emulated processor that has nothing translated: machine code made for each function apart would all have
 * to be, where the interpreter's pieces serve every function; and a compiler that starts just then costs more than the
 * session.
 *
 * And keeps V8 from collecting garbage because nothing else happens: each copy would, some seconds after its start,
 * walk and move the whole heap, which it shares with all others until then. What allocates still has garbage collected.
 *
 * After the bundle's code was taken, which V8 refuses under other flags than it was made with.
 */
function setUpV8(): void {
  for (const flag of ['--no-sparkplug', '--no-maglev', '--memory-reducer-gc-count=0'])
    setFlagsFromString(flag)
}

function readCache(): { cachedData?: Buffer } {
  try {
    return { cachedData: readFileSync(cache) }
  } catch {
    return {}
  }
}
