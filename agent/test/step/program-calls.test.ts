// Tools as functions of a program: a real program, the real channel, registry and step; the model is scripted.
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import * as z from 'zod'
import { reply } from '#specs/testing/model-replies.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { createCodeTools } from '../../tools/code/code.ts'
import { performStep, type StepTest, type StepTestOptions } from '../support/one-step.ts'
import { TestPrograms } from '../support/programs.ts'
import { noteTools, silentLogger, type TestRun, type ToolDiary } from '../support/run.ts'

let programs: TestPrograms
beforeAll(async () => {
  programs = await TestPrograms.open()
})
afterAll(async () => programs[Symbol.asyncDispose]())

interface Ran extends StepTest {
  readonly notes: ToolDiary
  /** What the model reads of the program. */
  readonly output: string
}

/** A tool outside of the VM that does what its argument says. */
const pay = (diary: ToolDiary) =>
  defineTool({
    name: 'pay',
    description: 'Pays.',
    inputSchema: z.strictObject({ how: z.string() }),
    outputSchema: z.string(),
    requiresApproval: false,
    readOnly: false,
    runs: 'host',
    execute: async ({ how }) => {
      diary.calls.push(`pay ${how}`)
      return how === 'lost' ? toolFailure('cancelled', 'its result is not known') : toolSuccess('paid')
    },
  })

async function runProgram(
  tool: 'run_python' | 'run_javascript',
  code: string,
  options: Omit<StepTestOptions, 'during'> & {
    during?: (test: TestRun) => void
    args?: object
    last?: ReturnType<typeof reply>
  } = {},
): Promise<Ran> {
  const { args, last = reply({ text: 'done' }), ...rest } = options
  const notes: ToolDiary = { calls: [], running: 0, mostRunning: 0 }
  const registry = createRegistry([...noteTools(notes), pay(notes), ...createCodeTools(programs.helper)], {
    logger: silentLogger,
    cancelGraceMs: 100,
  })
  const call = { name: tool, arguments: { code, ...args }, id: 'outer' }
  const test = await performStep([reply({ calls: [call] }), last], { registry, ...rest })
  const answer = test.result.history.find(({ role }) => role === 'tool')
  return { ...test, notes, output: answer?.content ?? '' }
}
const python = (code: string, options?: Parameters<typeof runProgram>[2]) =>
  runProgram('run_python', code, options)
const javascript = (code: string, options?: Parameters<typeof runProgram>[2]) =>
  runProgram('run_javascript', code, options)

const starts = ({ events }: Ran) =>
  events.flatMap((event) => (event.type === 'tool-start' ? [event] : [])).slice(1)
const ends = ({ events }: Ran) =>
  events.flatMap((event) => (event.type === 'tool-end' && event.callId !== 'outer' ? [event] : []))

describe('the tools as functions of a program', () => {
  it('give data to the program, and the model what it prints [A.14]', async () => {
    const ran = await python(
      "texts = [tools.read_note(path=p)['text'] for p in ['a', 'b', 'c']]\nprint(len(texts), texts[2])",
    )
    expect(ran.output).toMatch(/^3 text of c\n\[exit code 0/)
    expect(ran.notes.calls).toEqual(['read a', 'read b', 'read c'])
    expect(ran.asked).toHaveLength(2)
    expect(JSON.stringify(ran.result.history)).not.toContain('text of a')
  })

  it('are journaled below the call of the program, with ids that follow from what is called [A.14]', async () => {
    const code = "tools.read_note('a'); tools.write_note('b', 'x'); tools.read_note('a')"
    const [ran, again] = [await python(code), await python(code)]
    expect(starts(ran)).toMatchObject([
      { tool: 'read_note', parentCallId: 'outer', arguments: '{"path":"a"}' },
      { tool: 'write_note', parentCallId: 'outer' },
      { tool: 'read_note', parentCallId: 'outer' },
    ])
    const ids = starts(ran).map(({ callId }) => callId)
    expect(ids[0]).toMatch(/^outer\.[A-Za-z0-9]{9}$/)
    expect(ids[2]).toBe(`${ids[0]}-2`)
    expect(starts(again).map(({ callId }) => callId)).toEqual(ids)
    expect(ran.events.at(-2)).toMatchObject({ type: 'tool-end', callId: 'outer' })
    expect(ran.run.budget.spent.calls).toBe(4)
  })

  it('run at once in JavaScript where they only read, and in order where one writes [A.14]', async () => {
    const reads = await javascript(
      "const notes = await Promise.all(['met 1', 'met 2', 'met 3'].map((path) => tools.read_note({ path })))\nconsole.log(notes.map(({ text }) => text).join())",
    )
    expect(reads.output).toMatch(/^text of met 1,text of met 2,text of met 3\n/)
    expect(reads.notes.mostRunning).toBe(3)
    const writes = await javascript(
      "await Promise.all([tools.read_note({ path: 'slow' }), tools.write_note({ path: 'a', content: '' }), tools.read_note({ path: 'b' })])",
    )
    expect(writes.notes.mostRunning).toBe(1)
    expect(writes.notes.calls).toEqual(['read slow', 'write a', 'read b'])
  })

  it('run at once in threads of Python [A.14]', async () => {
    const ran = await python(
      "from concurrent.futures import ThreadPoolExecutor\nimport tools as t\nwith ThreadPoolExecutor(4) as pool: print(list(pool.map(lambda p: t.read_note(path=p)['text'], ['met 1', 'met 2', 'met 3'])))",
    )
    expect(ran.output).toContain("['text of met 1', 'text of met 2', 'text of met 3']")
    expect(ran.notes.mostRunning).toBe(3)
  })

  it('fail as exceptions with code and message; arguments are validated [A.14] [S2.18]', async () => {
    const ran = await python(
      "for call in [lambda: tools.read_note(path='missing'), lambda: tools.read_note(nope=1), lambda: tools.fly()]:\n  try: call()\n  except tools.ToolError as error: print(error.code, error.message)\n  except AttributeError as error: print(error)",
    )
    expect(ran.output).toContain('not_found no note missing')
    expect(ran.output).toContain('invalid_input the arguments do not fit read_note')
    expect(ran.output).toContain('there is no tool fly; the tools are drop_note, pay, read_note')
    const uncaught = await javascript("await tools.read_note({ path: 'missing' })")
    expect(uncaught.output).toMatch(/ToolError: no note missing/)
    expect(ends(ran).map(({ error }) => error?.code)).toEqual(['not_found', 'invalid_input'])
  })

  it('are there for modules and CommonJS; workers and forked processes have none [A.14]', async () => {
    const common = await javascript(
      "const { Worker } = require('node:worker_threads')\ntools.read_note({ path: 'a' }).then(({ text }) => {\n  console.log(text)\n  new Worker('console.log(typeof tools)', { eval: true })\n})",
    )
    expect(common.output).toMatch(/^text of a\nundefined\n\[exit code 0/)
    const pool = await python(
      "import multiprocessing\ndef read(path):\n  try: return tools.read_note(path=path)\n  except tools.ToolError as error: return error.code\nwith multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(read, ['a']))",
    )
    expect(pool.output).toContain("['unavailable']")
    expect(pool.notes.calls).toEqual([])
  })

  it('describe themselves', async () => {
    const ran = await python('print(tools.read_note.__doc__)\nprint(dir(tools))')
    expect(ran.output).toMatch(
      /^read_note\(path: string, limit\?: integer\) -> \{ text: string \}\n\nReads a note/,
    )
    expect(ran.output).toContain("['ToolError', 'drop_note', 'pay', 'read_note', 'wait_long', 'write_note']")
    const same = await javascript('console.log(tools.read_note.doc, Object.keys(tools).length)')
    expect(same.output).toContain('read_note(path: string, limit?: integer) -> { text: string }')
  })

  it('ask the person like any call, who learns that a program calls; a denial is an exception [A.14] [S1.11]', async () => {
    const ran = await python(
      "try: tools.drop_note(path='a')\nexcept tools.ToolError as error: print(error)\ntools.drop_note(path='b')",
      {
        decide: async ({ arguments: given }) =>
          given.includes('"a"') ? { decision: 'deny', hint: 'keep it' } : { decision: 'allow' },
      },
    )
    expect(ran.output).toContain('denied: this call of drop_note was denied')
    expect(ran.output).toContain('keep it')
    expect(ran.notes.calls).toEqual(['drop b'])
    expect(ran.approvals).toMatchObject([
      { tool: 'drop_note', parentCallId: 'outer', arguments: '{"path":"a"}', preview: 'deletes a' },
      { tool: 'drop_note', parentCallId: 'outer' },
    ])
  })

  it('end the step as denied where it fails and a call of its program was denied [A.14]', async () => {
    const code = "try: tools.drop_note(path='a')\nexcept tools.ToolError: pass"
    const failed = reply({ text: 'STEP FAILED: I may not' })
    const decide = async () => ({ decision: 'deny' as const })
    expect((await python(code, { decide, last: failed })).result).toMatchObject({
      state: 'failed',
      reason: 'denied',
    })
    expect((await python('1', { decide, last: failed })).result).toMatchObject({ reason: 'step_failed' })
  })

  it('do not take the time of the program while a person thinks', async () => {
    const ran = await python("tools.drop_note(path='a')\nprint('behind it')", {
      args: { timeoutMs: 2_000 },
      decide: async () => {
        await sleep(2_500)
        return { decision: 'allow' }
      },
    })
    expect(ran.output).toContain('behind it')
  })

  it('leave the time limit of the program as it is otherwise', async () => {
    const ran = await python("tools.read_note('a')\nimport time\ntime.sleep(60)", {
      args: { timeoutMs: 1_500 },
    })
    expect(ran.output).toMatch(/ended after .* because its time was over/)
  })
})

describe('what a program cannot do', () => {
  it('calls no tools that run code or belong to the conversation [A.14]', async () => {
    const ran = await javascript(
      "console.log(Object.keys(tools).includes('run_bash'), typeof tools.run_python)\nprocess.exitCode = 3",
    )
    expect(ran.output).toMatch(/^false undefined\n\[exit code 3/)
    const raw = await python(rawCalls("[{'id': 1, 'tool': 'run_python', 'arguments': '{\"code\":\"1\"}'}]"))
    expect(raw.output).toContain('run_python is not for programs')
    expect(starts(raw)).toEqual([])
  })

  it('has no more calls than the run, however many it asks for [A.14]', async () => {
    const few = await python(
      "n = 0\ntry:\n  while True: tools.read_note(path='a'); n += 1\nexcept tools.ToolError as error: print(n, error)",
      { task: { limits: { maxToolCalls: 4 } } },
    )
    expect(few.output).toMatch(/^3 limit_reached: no tool calls are left in this run\n/)
    expect(few.notes.calls).toHaveLength(3)
    expect(few.result).toMatchObject({ state: 'completed', text: 'done' })
    const many = await javascript(
      "const all = await Promise.allSettled(Array.from({ length: 10_000 }, (_, n) => tools.read_note({ path: String(n) })))\nconsole.log(all.filter(({ status }) => status === 'fulfilled').length, all[600].reason.code, all[9999].reason.code)",
      { task: { limits: { maxToolCalls: 601 } } },
    )
    expect(many.output).toMatch(/^600 limit_reached unavailable\n/)
    expect(many.notes.mostRunning).toBeLessThanOrEqual(8)
    expect(new Set(starts(many).map(({ callId }) => callId)).size).toBe(600)
  })

  it('ends its connection with what is no message, and continues itself [A.14]', async () => {
    for (const bytes of ["b'{\\n'", "b'[]\\n'", 'b\'{"id":1,"tool":"read_note"}\\n\'', "b'x' * 5_000_000"]) {
      const ran = await python(
        `${findSocket}\ntry: s.sendall(${bytes}); s.settimeout(20); print(s.recv(9))\nexcept OSError as error: print(b'')\ntry: tools.read_note(path='a')\nexcept tools.ToolError as error: print(error.code)`,
      )
      expect(ran.output).toMatch(/^b''\nunavailable\n\[exit code 0/)
      expect(ran.notes.calls).toEqual([])
    }
  })

  it('gets no time by leaving answers unread [A.14]', async () => {
    const flood = `import json, time
${findSocket}
for n in range(1, 400): s.sendall(json.dumps(MESSAGE(n)).encode() + b'\\n')
time.sleep(20)
print('still here')`
    for (const message of [
      "{'id': n, 'list': True}",
      "{'id': n, 'tool': 'read_note', 'arguments': json.dumps({'path': 'x' * 9000})}",
    ]) {
      const ran = await python(`MESSAGE = lambda n: ${message}\n${flood}`, { args: { timeoutMs: 2_500 } })
      expect(ran.output).toMatch(/ended after .* because its time was over/)
      expect(ran.output).not.toContain('still here')
    }
  })

  it('gets an error for arguments nested without an end, and calls on [A.14]', async () => {
    const ran = await python(
      rawCalls(`[{'id': 1, 'tool': 'read_note', 'arguments': '{"path":' + '[' * 500_000 + ']' * 500_000 + '}'},
  {'id': 2, 'tool': 'read_note', 'arguments': '{"a":' * 150_000 + '1' + '}' * 150_000},
  {'id': 3, 'tool': 'read_note', 'arguments': '{"path":"a"}'}]`),
    )
    expect(ran.output).toMatch(/"id":1,"error".*"id":2,"error".*"id":3,"value":\{"text":"text of a"/s)
  })

  it('lets no other process in: the token works once, and is in no environment [A.14]', async () => {
    const ran = await python(
      `import os, subprocess, sys
${findSocket}
print('CAISSON_TOOLS' in os.environ, s.getpeername() is not None)
child = subprocess.run([sys.executable, '-c', "import os; print('CAISSON_TOOLS' in os.environ)"], capture_output=True, text=True)
print(child.stdout.strip())
if os.fork() == 0:
  try: tools.read_note(path='a')
  except tools.ToolError as error: print(error.code, flush=True)
  os._exit(0)
os.wait()
print(tools.read_note(path='b')['text'])`,
    )
    expect(ran.output).toMatch(/^False True\nFalse\nunavailable\ntext of b\n/)
    expect(ran.notes.calls).toEqual(['read b'])
  })

  it('gets an error where a result is too long for it', async () => {
    const registry = createRegistry(
      [
        defineTool({
          name: 'give_much',
          description: 'Gives much.',
          inputSchema: z.strictObject({}),
          outputSchema: z.string(),
          requiresApproval: false,
          readOnly: true,
          execute: async () => toolSuccess('x'.repeat(2_000_000)),
        }),
        ...createCodeTools(programs.helper),
      ],
      { logger: silentLogger },
    )
    const ran = await python('try: tools.give_much()\nexcept tools.ToolError as error: print(error)', {
      registry,
    })
    expect(ran.output).toMatch(/^too_large: the call was made, and its result of 2000\d+ bytes/)
  })

  it('ends its calls with its own end, and with that of the run [A.14] [S1.09]', async () => {
    const left = await python(
      'import threading, time, os\nthreading.Thread(target=lambda: tools.wait_long(), daemon=True).start()\nwhile not dir(tools): pass\ntime.sleep(1)\nos._exit(0)',
    )
    expect(ends(left)).toMatchObject([{ tool: 'wait_long', error: { code: 'cancelled' } }])
    expect(left.notes.running).toBe(0)
    const cancelled = await python('tools.wait_long()', {
      during: ({ cancel, events }) => {
        const timer = setInterval(() => {
          if (events.some((event) => event.type === 'tool-start' && event.tool === 'wait_long')) {
            clearInterval(timer)
            cancel()
          }
        }, 10)
      },
    })
    expect(ends(cancelled)).toMatchObject([{ tool: 'wait_long', error: { code: 'cancelled' } }])
    expect(cancelled.result.state).toBe('cancelled')
    await expect.poll(() => programs.running).toBe(0)
  })

  it('makes no more calls outside of the VM once the effect of one is unknown [A.14] [R.01]', async () => {
    const ran = await python(
      "for how in ['a', 'lost', 'lost', 'b']:\n  try: print(tools.pay(how=how))\n  except tools.ToolError as error: print(error)\nprint(tools.read_note(path='c')['text'])",
    )
    expect(ran.notes.calls).toEqual(['pay a', 'pay lost', 'read c'])
    expect(ran.output).toContain('the effect of an earlier call of pay is unknown')
    expect(ran.output).toContain('text of c')
  })
})

/** The program's own connection. */
const findSocket = `import os, socket
def links():
  for fd in os.listdir('/proc/self/fd'):
    try: yield int(fd), os.readlink('/proc/self/fd/' + fd)
    except OSError: pass
s = socket.socket(fileno=next(fd for fd, link in links() if fd > 2 and link.startswith('socket:')))`

/** Sends messages as they are, without the module, and prints the answers. */
function rawCalls(messages: string): string {
  return `import json\n${findSocket}\nfor message in ${messages}:\n  s.sendall(json.dumps(message).encode() + b'\\n')\n  print(s.recv(65536).decode())`
}
