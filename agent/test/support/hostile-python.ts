/** Hostile code in Python. */
import { ends, type HostileRow, soon } from './hostile-row.ts'

const lines = (...text: string[]): string => text.join('\n')
const def = (...text: string[]): string => lines('def work(a):', ...text.map((line) => `    ${line}`))

export const hostilePython: readonly HostileRow[] = [
  // Time.
  { what: 'loops without end', code: def('while True: pass'), ...ends },
  {
    what: 'loops in a coroutine',
    code: lines('import asyncio', 'async def work(a):', '    while True: await asyncio.sleep(0)'),
    ...ends,
  },
  {
    what: 'waits for an event that never comes',
    code: lines('import asyncio', 'async def work(a):', '    await asyncio.Event().wait()'),
    ...ends,
  },
  {
    what: 'ignores signals',
    code: lines(
      'import signal',
      'for number in range(1, 32):',
      '    try: signal.signal(number, signal.SIG_IGN)',
      '    except OSError: pass',
      def('while True: pass'),
    ),
    ...ends,
  },
  {
    what: 'catches every exception',
    code: def('while True:', '    try:', '        while True: pass', '    except BaseException: pass'),
    ...ends,
  },
  {
    what: 'has a pattern that backtracks',
    code: lines('import re', def('return re.match("^(a+)+$", "a" * 60 + "b")')),
    ...ends,
  },
  {
    what: 'gives a dictionary without end',
    code: lines(
      'class Endless(dict):',
      '    def items(self):',
      '        while True: yield "a", 1',
      def('return Endless(a=1)'),
    ),
    timeoutMs: soon,
    gives: /^(timed_out|internal|limit_reached): |^\{/,
  },
  {
    what: 'leaves a thread',
    code: lines(
      'import threading, time',
      def('threading.Thread(target=time.sleep, args=(1000,)).start()', 'return "kept"'),
    ),
    gives: /^"kept"$/,
  },
  {
    what: 'leaves a program',
    code: lines('import subprocess', def('subprocess.Popen(["sleep", "1000"])', 'return "kept"')),
    gives: /^"kept"$/,
  },
  {
    what: 'leaves a process of multiprocessing',
    code: lines(
      'import multiprocessing, time',
      def('multiprocessing.Process(target=time.sleep, args=(1000,)).start()', 'return "kept"'),
    ),
    gives: /^"kept"$/,
  },
  {
    what: 'loops while it ends',
    code: lines(
      'import atexit',
      '@atexit.register',
      'def end():',
      '    while True: pass',
      def('return "kept"'),
    ),
    gives: /^"kept"$/,
  },
  { what: 'returns twice', code: lines('import os', def('os.fork()', 'return "kept"')), gives: /^"kept"$/ },
  {
    what: 'hides a process',
    code: lines(
      'import os, time',
      def(
        'if os.fork() == 0:',
        '    os.setsid()',
        '    if os.fork() == 0:',
        '        os.close(1); os.close(2); time.sleep(1000)',
        '    os._exit(0)',
        'return "kept"',
      ),
    ),
    gives: /^"kept"$/,
    needsVm: true,
  },
  {
    what: 'is a fork bomb',
    code: lines('import os', def('while True: os.fork()')),
    gives: /^(limit_reached: work (started|needed) more than|timed_out: )/,
    needsVm: true,
    timeoutMs: 5_000,
  },
  {
    what: 'starts threads without end',
    code: lines(
      'import threading, time',
      def('while True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()'),
    ),
    gives: /^limit_reached: work (started more than \d+ processes|needed more than)/,
    needsVm: true,
  },
  // Memory and output.
  {
    what: 'asks for one buffer that is too large',
    code: def('return len(bytearray(1 << 46))'),
    gives: /^internal: [\s\S]*MemoryError/,
  },
  {
    what: 'keeps many small objects',
    code: def('all = []', 'while True: all.append([all])'),
    gives: /^limit_reached: work needed more than \d+ MiB$/,
    needsVm: true,
    timeoutMs: 120_000,
  },
  {
    what: 'lets children use the memory',
    code: lines(
      'import os, time',
      def(
        'for _ in range(8):',
        '    if os.fork() == 0:',
        '        hog = bytearray(b"x") * 64_000_000; time.sleep(1000)',
        'time.sleep(20)',
        'return "lost"',
      ),
    ),
    gives: /^limit_reached: work needed more than \d+ MiB$/,
    needsVm: true,
    timeoutMs: 120_000,
  },
  {
    what: 'floods standard output',
    code: def('while True: print("x" * 65536)'),
    gives: /^too_large: work wrote more than \d+ bytes$/,
  },
  {
    what: 'floods standard error',
    code: lines('import sys', def('while True: sys.stderr.write("x" * 65536)')),
    gives: /^too_large: work wrote more than \d+ bytes$/,
  },
  // Results.
  {
    what: 'gives a huge text',
    code: def('return "x" * 3_000_000'),
    gives: /^too_large: work wrote more than/,
  },
  {
    what: 'gives a deep list',
    code: def('deep = []', 'for _ in range(40): deep = [deep]', 'return deep'),
    gives: /^invalid_output: the result nests deeper than 32 levels$/,
  },
  {
    what: 'gives a list too deep for JSON',
    code: def('deep = []', 'for _ in range(100000): deep = [deep]', 'return deep'),
    gives: /^internal: [\s\S]*RecursionError/,
  },
  {
    what: 'gives itself',
    code: def('own = []', 'own.append(own)', 'return own'),
    gives: /^internal: ValueError: Circular reference detected$/,
  },
  {
    what: 'gives no number',
    code: def('return float("nan")'),
    gives: /^internal: ValueError: Out of range float values/,
  },
  {
    what: 'gives an infinite number',
    code: def('return [10 ** 400]'),
    gives: /^invalid_output: the result has a number that is too large for JSON programs$/,
  },
  {
    what: 'gives a number of a million digits',
    code: def('return 10 ** 1000000'),
    gives: /^internal: ValueError: Exceeds the limit/,
  },
  {
    what: 'gives bytes',
    code: def('return b"a"'),
    gives: /^internal: TypeError: Object of type bytes is not JSON serializable$/,
  },
  {
    what: 'gives a generator',
    code: def('yield 1'),
    gives: /^internal: TypeError: Object of type generator is not JSON serializable$/,
  },
  {
    what: 'gives an async generator',
    code: lines('async def work(a):', '    while True: yield 1'),
    gives: /^internal: TypeError: Object of type async_generator is not JSON serializable$/,
  },
  {
    what: 'gives keys that are no text',
    code: def('return {(1, 2): 3}'),
    gives: /^internal: TypeError: keys must be str/,
  },
  { what: 'gives half a character', code: def('return "a\\ud800"'), gives: /^"a\ufffd"$/ },
  {
    what: 'gives a prototype',
    code: def('return {"__proto__": {"polluted": 1}}'),
    gives: /^invalid_output: the result has the key "__proto__"$/,
  },
  // The harness.
  {
    what: 'replaces built-ins',
    code: lines(
      'import builtins, json, os, sys',
      'builtins.print = builtins.open = builtins.__import__ = None',
      'json.dumps = os.write = os.dup = None',
      'sys.stdout = sys.stderr = None',
      'sys.modules.clear()',
      def('return "kept"'),
    ),
    gives: /^"kept"$/,
  },
  {
    what: 'clears its globals',
    code: lines(def('return "lost"'), 'globals().clear()'),
    gives: /^internal: TypeError: the code defines no function work$/,
  },
  {
    what: 'closes standard output',
    code: lines('import os', def('os.close(1)', 'return "kept"')),
    gives: /^"kept"$/,
  },
  {
    what: 'closes everything',
    code: lines('import os', def('os.closerange(0, 4096)', 'return "lost"')),
    gives: /^internal: /,
  },
  {
    what: 'ends its process',
    code: lines('import os', def('os._exit(0)')),
    gives: /^internal: the code ended before the function returned, with exit code 0$/,
  },
  {
    what: 'exits',
    code: lines('import sys', def('sys.exit(0)')),
    gives: /^internal: the code ended before the function returned, with exit code 0$/,
  },
  {
    what: 'exits with a text',
    code: lines('import sys', def('sys.exit("enough")')),
    gives: /^internal: enough$/,
  },
  {
    what: 'kills its process',
    code: lines('import os', def('os.kill(os.getpid(), 9)')),
    gives: /^internal: the code ended before the function returned, with (a signal|exit code 137)$/,
  },
  {
    what: 'crashes the interpreter',
    code: lines('import ctypes', def('ctypes.string_at(0)')),
    gives: /^internal: the code ended before the function returned, with (a signal|exit code 139)$/,
  },
  {
    what: 'reads its own input again',
    code: lines('import sys', def('return sys.stdin.read()')),
    gives: /^""$/,
  },
  // Exceptions.
  {
    what: 'raises what is no exception',
    code: def('raise 1'),
    gives: /^internal: [\s\S]*TypeError: exceptions must derive from BaseException$/,
  },
  {
    what: 'raises outside of Exception',
    code: def('raise BaseException("odd")'),
    gives: /^internal: [\s\S]*BaseException: odd$/,
  },
  {
    what: 'raises what raises when it is shown',
    code: lines('class Odd(Exception):', '    def __str__(self): raise Odd', def('raise Odd')),
    gives: /^internal: [\s\S]*Odd: <exception str\(\) failed>$/,
  },
  {
    what: 'raises KeyboardInterrupt',
    code: def('raise KeyboardInterrupt'),
    gives: /^internal: [\s\S]*KeyboardInterrupt$/,
  },
  {
    what: 'raises a huge message',
    code: def('raise ValueError("x" * 1_000_000)'),
    gives: /^internal: [\s\S]{100,2100}$/,
  },
  {
    what: 'calls itself without end',
    code: def('return work(a)'),
    gives: /^internal: [\s\S]*RecursionError/,
  },
  // Names and syntax.
  { what: 'is no code', code: 'def work(:', gives: /^internal: [\s\S]*SyntaxError/ },
  {
    what: 'opens a text',
    code: lines(def('return 1'), 'text = """'),
    gives: /^internal: [\s\S]*SyntaxError/,
  },
  {
    what: 'has a NUL',
    code: lines(def('return 1'), '# \0'),
    gives: /^internal: [\s\S]*(SyntaxError|ValueError): source code string cannot contain null bytes$/,
  },
  {
    what: 'has half a character',
    code: lines(def('return 1'), 'text = "\ud800"'),
    gives: /^internal: [\s\S]*UnicodeEncodeError/,
  },
  {
    what: 'nests without end',
    code: `${'('.repeat(5000)}1${')'.repeat(5000)}`,
    gives: /^internal: [\s\S]*(SyntaxError|MemoryError|RecursionError)/,
  },
  {
    what: 'imports what is not there',
    code: lines('import nothing', def('return 1')),
    gives: /^internal: [\s\S]*ModuleNotFoundError: No module named 'nothing'$/,
  },
  {
    what: 'defines another function',
    code: 'def other(a): pass',
    gives: /^internal: TypeError: the code defines no function work$/,
  },
  {
    what: 'has a name of the interpreter',
    name: '__loader__',
    code: 'x = 1',
    gives: /^internal: TypeError: the code defines no function __loader__$/,
  },
  {
    what: 'has the name of a built-in',
    name: 'print',
    code: 'x = 1',
    gives: /^internal: TypeError: the code defines no function print$/,
  },
]
