/**
 * The program of a call of a function with code. What it needs to call the function is loaded before the code, so that
 * code that replaces globals changes only what it computes. The result stands behind a mark on standard output.
 */
import { Buffer } from 'node:buffer'
import type { CodeFunction } from '#specs/protocol/workflow.ts'
import { COMPILE } from './python-runner.ts'

/** @param given arguments in order @param mark hexadecimal digits */
export function functionProgram(
  { name, language, code }: Pick<CodeFunction, 'name' | 'language' | 'code'>,
  given: readonly unknown[],
  mark: string,
): { readonly argv: readonly string[]; readonly stdin: string } {
  if (language === 'python')
    return { argv: ['python3', '-c', PYTHON], stdin: JSON.stringify({ name, given, mark, code }) }
  const harness = `data:text/javascript,${encodeURIComponent(javascriptHarness(name, mark))}`
  // Has no character that could end a comment or text which the code leaves open.
  const encoded = Buffer.from(JSON.stringify(given)).toString('base64url')
  const call = `;await caisson_${mark}(typeof ${name} === 'undefined' ? undefined : ${name}, '${encoded}')\n`
  // Node strips types that can be erased.
  const argv = ['node', '--no-warnings', `--import=${harness}`, '--input-type=module-typescript', '-']
  return { argv, stdin: `${code}\n${call}` }
}

/** A name that the code does not define may be one of Node's own: `known`. */
const javascriptHarness = (name: string, mark: string) => `
import { writeSync } from 'node:fs'
const { parse, stringify } = JSON
const { apply } = Reflect
const { wait } = Atomics
const aWhile = new Int32Array(new SharedArrayBuffer(4))
const toBuffer = Buffer.from
const known = globalThis.${name}
process.execArgv = []
const value = async (work, given) => {
  if (typeof work !== 'function' || work === known) throw new TypeError('the code defines no function ${name}')
  const value = await apply(work, undefined, parse(toBuffer(given, 'base64url')))
  if (typeof value === 'object' && value !== null && typeof value.next === 'function')
    throw new TypeError('${name} returned a generator; return a list')
  const text = stringify(value === undefined ? null : value)
  if (typeof text !== 'string') throw new TypeError('${name} returned what JSON does not have')
  let bytes = toBuffer('\\n${mark}' + text + '\\n')
  while (bytes.length > 0)
    try {
      bytes = bytes.subarray(writeSync(1, bytes))
    } catch (error) {
      // Where the code has used standard output, it does not block.
      if (error.code !== 'EAGAIN') throw error
      wait(aWhile, 0, 0, 5)
    }
}
Object.defineProperty(globalThis, 'caisson_${mark}', { value })
//# sourceURL=caisson:function
`

/** In `__main__`, so that pickle and multiprocessing find the code's definitions. */
const PYTHON = `${COMPILE}
def _run():
    import os, sys
    # A module of the workspace must not stand in for one that this needs.
    first = sys.path.pop(0)
    import json
    call = json.load(sys.stdin)
    name, out, write, dumps = call['name'], os.dup(1), os.write, json.dumps
    sys.path.insert(0, first)
    code = _compile(call['code'])
    del globals()['_run'], globals()['_compile']
    known = globals().get(name)
    exec(code, globals())
    function = globals().get(name)
    if function is known or not callable(function):
        raise TypeError(f'the code defines no function {name}')
    value = function(*call['given'])
    if hasattr(type(value), '__await__'):
        import asyncio
        async def finish():
            return await value
        value = asyncio.run(finish())
    line = ('\\n' + call['mark'] + dumps(value, allow_nan=False) + '\\n').encode()
    while line:
        line = line[write(out, line):]
_run()
`
