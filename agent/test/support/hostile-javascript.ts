/** Hostile code in JavaScript. */
import { ends, type HostileRow, soon } from './hostile-row.ts'

const body = (text: string): string => `function work(a) { ${text} }`

const flood = (stream: 'stdout' | 'stderr'): string =>
  `async function work() { for (;;) await new Promise((done) => process.${stream}.write("x".repeat(65536), done)) }`

/** Finds the mark of its own call and writes a result behind it. */
const forge = (text: string, then = 'process.exit(0)'): string =>
  body(
    `const mark = Object.getOwnPropertyNames(globalThis).find((name) => name.startsWith('caisson_')).slice(8); require('node:fs').writeSync(1, '\\n' + mark + ${text}); ${then}`,
  ).replace(
    'function',
    "import { createRequire } from 'node:module'; const require = createRequire('/'); function",
  )

export const hostileJavascript: readonly HostileRow[] = [
  // Time.
  { what: 'loops without end', code: body('for (;;);'), ...ends },
  { what: 'loops in promises', code: 'async function work() { for (;;) await null }', ...ends },
  { what: 'loops while it loads', code: 'for (;;); function work() {}', ...ends },
  {
    what: 'resolves with itself again and again',
    code: body('const own = { then(use) { use(own) } }; return own'),
    ...ends,
  },
  {
    what: 'waits with a timer',
    code: body('setInterval(() => {}, 10); return new Promise(() => {})'),
    ...ends,
  },
  { what: 'loops in a getter of its result', code: body('return { get a() { for (;;); } }'), ...ends },
  { what: 'loops in toJSON', code: body('return { toJSON() { for (;;); } }'), ...ends },
  { what: 'loops in a proxy', code: body('return new Proxy({}, { ownKeys() { for (;;); } })'), ...ends },
  {
    what: 'loops while it ends',
    code: `process.on('exit', () => { for (;;); }); ${body('return "kept"')}`,
    gives: /^"kept"$/,
  },
  {
    what: 'ignores signals',
    code: `for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGXCPU']) process.on(name, () => {}); ${body('for (;;);')}`,
    ...ends,
  },
  {
    what: 'has a pattern that backtracks',
    code: body('return /^(a+)+$/.test("a".repeat(60) + "b")'),
    ...ends,
  },
  {
    what: 'never settles',
    code: body('return new Promise(() => {})'),
    gives: /^internal: the function waits for a promise that never settles/,
  },
  {
    what: 'gives a thenable that never settles',
    code: body('return { then() {} }'),
    gives: /^internal: the function waits for a promise that never settles/,
  },
  {
    what: 'never settles while it loads',
    code: 'await new Promise(() => {}); function work() {}',
    gives: /^internal: the function waits for a promise that never settles/,
  },
  { what: 'leaves a timer', code: body('setInterval(() => {}, 10); return "kept"'), gives: /^"kept"$/ },
  {
    what: 'leaves a program',
    code: `import { spawn } from 'node:child_process'; ${body('spawn("sleep", ["1000"]); return "kept"')}`,
    gives: /^"kept"$/,
  },
  {
    what: 'leaves a worker',
    code: `import { Worker } from 'node:worker_threads'; ${body('new Worker("for (;;);", { eval: true }); return "kept"')}`,
    gives: /^"kept"$/,
  },
  // Memory and output.
  {
    what: 'asks for one buffer that is too large',
    code: body('return new Uint8Array(2 ** 46).length'),
    gives: /^internal: [\s\S]*RangeError/,
  },
  {
    what: 'doubles a text',
    code: body('let text = "x"; for (;;) text += text'),
    gives: /^internal: [\s\S]*RangeError: Invalid string length/,
  },
  {
    what: 'keeps many small objects',
    code: body('const all = []; for (;;) all.push(Array.from({ length: 2_000 }, () => ({ all })))'),
    gives: /^(limit_reached: work needed more than \d+ MiB|internal: [\s\S]*heap out of memory)/,
    needsVm: true,
    timeoutMs: 120_000,
  },
  {
    what: 'fills buffers',
    code: body('const all = []; for (;;) all.push(Buffer.alloc(8_000_000, 1))'),
    gives: /^limit_reached: work needed more than \d+ MiB$/,
    needsVm: true,
    timeoutMs: 120_000,
  },
  {
    what: 'floods standard output',
    code: flood('stdout'),
    gives: /^too_large: work wrote more than \d+ bytes$/,
  },
  {
    what: 'floods standard error',
    code: flood('stderr'),
    gives: /^too_large: work wrote more than \d+ bytes$/,
  },
  {
    what: 'floods after its result',
    code: `${body('setTimeout(flood); return "kept"')}; ${flood('stdout').replace('work', 'flood')}`,
    gives: /^("kept"$|too_large: work wrote more than)/,
  },
  {
    what: 'writes without waiting',
    code: body('for (;;) process.stdout.write("x".repeat(1_000_000))'),
    gives: /^(limit_reached: work needed more than|too_large: |internal: [\s\S]*heap out of memory)/,
    needsVm: true,
    timeoutMs: 120_000,
  },
  // Results.
  {
    what: 'gives a huge text',
    code: body('return "x".repeat(3_000_000)'),
    gives: /^too_large: work wrote more than/,
  },
  {
    what: 'gives a text over the bound',
    code: body('return "x".repeat(300_000)'),
    gives: /^too_large: the result has 300002 characters; at most \d+ are kept$/,
  },
  {
    what: 'gives a deep list',
    code: body('let deep = []; for (let at = 0; at < 40; at++) deep = [deep]; return deep'),
    gives: /^invalid_output: the result nests deeper than 32 levels$/,
  },
  {
    what: 'gives a list too deep for JSON',
    code: body('let deep = []; for (let at = 0; at < 1e6; at++) deep = [deep]; return deep'),
    gives: /^internal: [\s\S]*RangeError: Maximum call stack size exceeded/,
  },
  {
    what: 'gives itself',
    code: body('const own = { list: [] }; own.list.push(own); return own'),
    gives: /^internal: [\s\S]*circular/,
  },
  {
    what: 'gives names of Object.prototype',
    code: body('return { constructor: 1, toString: null, hasOwnProperty: [] }'),
    gives: /^\{"constructor":1,"toString":null,"hasOwnProperty":\[\]\}$/,
  },
  {
    what: 'gives a prototype',
    code: body(
      'return JSON.parse(\'{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}\')',
    ),
    gives: /^invalid_output: the result has the key "__proto__"$/,
  },
  {
    what: 'throws in toJSON',
    code: body('return { toJSON() { throw new Error("no JSON") } }'),
    gives: /^internal: [\s\S]*Error: no JSON/,
  },
  {
    what: 'throws in a getter',
    code: body('return { get a() { throw new Error("no value") } }'),
    gives: /^internal: [\s\S]*Error: no value/,
  },
  { what: 'gives a large integer', code: body('return 10n'), gives: /^internal: [\s\S]*BigInt/ },
  {
    what: 'gives a symbol',
    code: body('return Symbol("a")'),
    gives: /^internal: [\s\S]*returned what JSON does not have/,
  },
  {
    what: 'gives a generator',
    code: 'function* work() { for (;;) yield 1 }',
    gives: /^internal: [\s\S]*returned a generator; return a list/,
  },
  {
    what: 'gives an async generator',
    code: 'async function* work() { for (;;) yield 1 }',
    gives: /^internal: [\s\S]*returned a generator; return a list/,
  },
  { what: 'gives half a character', code: body('return "a\\ud800"'), gives: /^"a\ufffd"$/ },
  {
    what: 'gives another type',
    code: body('return { length: 1 }'),
    returns: { type: 'array' },
    gives: /^invalid_output: what work returned: /,
  },
  // The harness.
  {
    what: 'pollutes Object.prototype',
    code: `Object.prototype.toJSON = undefined; Object.prototype.get = () => 1; Object.prototype.value = 2; ${body('return { a }')}`,
    gives: /^\{"a":1\}$/,
  },
  {
    what: 'pollutes functions and promises',
    code: `Function.prototype.call = Function.prototype.apply = Promise.prototype.then = Array.prototype.push = Array.prototype[Symbol.iterator] = null; ${body('return "kept"')}`,
    gives: /^"kept"$/,
  },
  {
    what: 'replaces globals',
    code: `globalThis.JSON = globalThis.Reflect = globalThis.Promise = globalThis.Buffer = null; process.stdout.write = () => true; process.exit = () => {}; console.log = null; globalThis.process = null; ${body('return "kept"')}`,
    gives: /^"kept"$/,
  },
  {
    what: 'deletes all globals',
    code: `for (const name of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[name] } catch {} ${body('return "kept"')}`,
    gives: /^"kept"$/,
  },
  {
    what: 'ends its process',
    code: body('process.exit(0)'),
    gives: /^internal: the code ended before the function returned, with exit code 0$/,
  },
  {
    what: 'ends its process while it loads',
    code: 'process.reallyExit(0)',
    gives: /^internal: the code ended before the function returned, with exit code 0$/,
  },
  {
    what: 'kills its process',
    code: body('process.kill(process.pid, "SIGKILL"); for (;;);'),
    gives: /^internal: the code ended before the function returned, with (a signal|exit code 137)$/,
  },
  { what: 'aborts', code: body('process.abort()'), gives: /^internal: / },
  {
    what: 'sets an exit code',
    code: body('process.exitCode = 3; return "lost"'),
    gives: /^internal: the code ended with exit code 3$/,
  },
  {
    what: 'swallows its own exception',
    code: `process.on('uncaughtException', () => {}); ${body('throw new Error("swallowed")')}`,
    gives: /^internal: the code ended before the function returned/,
  },
  {
    what: 'rejects a promise that nobody waits for',
    code: body('Promise.reject(new Error("alone")); return "lost"'),
    gives: /^internal: [\s\S]*Error: alone/,
  },
  {
    what: 'closes standard output',
    code: `import { closeSync } from 'node:fs'; ${body('closeSync(1); return "lost"')}`,
    gives: /^internal: /,
  },
  // Forged results: the same as a returned value, and checked as such.
  {
    what: 'forges a result of another type',
    code: forge("'1\\n'"),
    returns: { type: 'string' },
    gives: /^invalid_output: what work returned: /,
  },
  { what: 'forges what is no JSON', code: forge("'{\\n'"), gives: /^invalid_output: the result is no JSON$/ },
  {
    what: 'forges bytes that are no text',
    code: forge("Buffer.from([34, 255, 254, 34, 10]).toString('latin1')"),
    gives: /^"\u00ff\u00fe"$/,
  },
  {
    what: 'forges a list of a million levels',
    code: forge("'['.repeat(1e5) + ']'.repeat(1e5) + '\\n'"),
    gives: /^invalid_output: the result is no JSON$/,
  },
  {
    what: 'forges an infinite number',
    code: forge("'[1e999]\\n'"),
    gives: /^invalid_output: the result has a number that is too large for JSON programs$/,
  },
  {
    what: 'forges half a result and waits',
    code: forge("'\"half'", 'for (;;);'),
    ...ends,
  },
  {
    what: 'forges half a result and ends',
    code: forge("'\"half'"),
    gives: /^internal: the code ended before the function returned, with exit code 0$/,
  },
  {
    what: 'forges a result and fails',
    code: forge("'1\\n'", 'throw new Error("after all")'),
    gives: /^internal: [\s\S]*Error: after all/,
  },
  {
    what: 'guesses the mark',
    code: body('console.log("\\n" + "0".repeat(24) + "1"); throw new Error("no mark")'),
    gives: /^internal: [\s\S]*Error: no mark/,
  },
  // Exceptions.
  { what: 'throws null', code: body('throw null'), gives: /^internal: [\s\S]*null/ },
  { what: 'throws undefined', code: 'throw undefined', gives: /^internal: [\s\S]*undefined/ },
  { what: 'throws a symbol', code: body('throw Symbol("odd")'), gives: /^internal: / },
  {
    what: 'throws what throws when it is shown',
    code: body(
      'throw { toString() { throw 1 }, get stack() { throw 2 }, get message() { throw 3 }, [Symbol.for("nodejs.util.inspect.custom")]() { throw 4 } }',
    ),
    gives: /^internal: /,
  },
  {
    what: 'throws a proxy that loops',
    code: body('throw new Proxy({}, { get() { for (;;); }, getPrototypeOf() { for (;;); } })'),
    gives: /^(internal|timed_out): /,
    timeoutMs: soon,
  },
  {
    what: 'throws a huge message',
    code: body('throw new Error("\\u001b[31m\\0" + "x".repeat(1_000_000))'),
    gives: /^internal: [\s\S]{100,2100}$/,
  },
  {
    what: 'calls itself without end',
    code: body('return work(a)'),
    gives: /^internal: [\s\S]*RangeError: Maximum call stack/,
  },
  // Names and syntax.
  { what: 'is no code', code: 'function work( {', gives: /^internal: [\s\S]*SyntaxError/ },
  { what: 'opens a comment', code: 'function work() {} /*', gives: /^internal: [\s\S]*SyntaxError/ },
  {
    what: 'opens a template',
    code: 'function work() {} const text = `',
    gives: /^internal: [\s\S]*SyntaxError/,
  },
  {
    what: 'closes a block that is not open',
    code: 'function work() {} }',
    gives: /^internal: [\s\S]*SyntaxError/,
  },
  {
    what: 'has types that have to be compiled',
    code: 'enum Kind { One } function work() {}',
    gives: /^internal: [\s\S]*enum/,
  },
  { what: 'ends in a comment', code: `${body('return "kept"')} // end`, gives: /^"kept"$/ },
  {
    what: 'begins with #! and marks',
    code: `#!/usr/bin/env node\n${body('return "kept"')}`,
    gives: /^"kept"$/,
  },
  {
    what: 'has CRLF, NUL and separators',
    code: `${body('return "k\u2028ept"')}\r\n// \0`,
    gives: /^"k\u2028ept"$/,
  },
  {
    what: 'imports what is not there',
    code: `import 'nothing'; ${body('return 1')}`,
    gives: /^internal: [\s\S]*ERR_MODULE_NOT_FOUND/,
  },
  {
    what: 'imports from the network',
    code: `import 'https://example.invalid/a.js'; ${body('return 1')}`,
    gives: /^internal: [\s\S]*ERR_UNSUPPORTED_ESM_URL_SCHEME/,
  },
  {
    what: 'is a class',
    code: 'class work {}',
    gives: /^internal: [\s\S]*TypeError: Class constructor work cannot be invoked/,
  },
  {
    what: 'has a name of Object.prototype',
    name: 'constructor',
    code: 'function other() {}',
    gives: /^internal: [\s\S]*the code defines no function constructor/,
  },
  {
    what: 'defines that name',
    name: 'constructor',
    code: 'function constructor() { return "kept" }',
    gives: /^"kept"$/,
  },
  {
    what: 'has the name of a global',
    name: 'fetch',
    code: 'function other() {}',
    gives: /^internal: [\s\S]*the code defines no function fetch/,
  },
  {
    what: 'has the name __proto__',
    name: '__proto__',
    code: 'function __proto__() { return "kept" }',
    gives: /^"kept"$/,
  },
  { what: 'has the name then', name: 'then', code: 'export function then(a) { return a }', gives: /^1$/ },
]
