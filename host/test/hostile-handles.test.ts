// What an application may get wrong with what it got from a host: runs, sandboxes, VMs, changes, notes. No VM is started.
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import { initialRunState, type RunState } from '#specs/protocol/run-state.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { RunClient } from '../control/run-client.ts'
import { ControlServer } from '../control/server.ts'
import { Shell } from '../control/shell.ts'
import { VmClient } from '../control/vm-client.ts'
import { codeHook } from '../hooks/code-hook.ts'
import { Feed } from '../journal/run-feed.ts'
import { RunRecord } from '../journal/run-record.ts'
import { RunChanges } from '../runs/changes.ts'
import { type PlannedRun, requireTask } from '../runs/resolved-run.ts'
import { Run } from '../runs/run.ts'
import { RunNotes } from '../runs/run-notes.ts'
import { Sandbox } from '../sandbox/sandbox.ts'
import { prepareHostTools } from '../tools/host-tools.ts'
import { info } from './control/support.ts'
import { changedRunId, runThatChanged } from './support/changed-run.ts'
import { expectRefusal, hostileRuns, thrownBy, wrongOptions, wrongText } from './support/hostile-values.ts'
import { plannedRun } from './support/planned-run.ts'
import { noteIdOf, proposed, proposingRunId, runThatProposed } from './support/proposals.ts'
import { runId } from './support/run-values.ts'

const given = fc.anything().filter((value) => value !== undefined)
const wrongNumber = fc.anything().filter((value) => typeof value !== 'number')
const wrongFlag = fc.anything().filter((value) => typeof value !== 'boolean')
const wrongNone = wrongText.filter((value) => !Array.isArray(value))
const wrongActor = fc.oneof(wrongOptions, fc.record({ by: wrongText.filter((value) => value !== undefined) }))
const wrongPath = fc.oneof(wrongText, fc.constantFrom('', 'a\0b', '\ud800'))
const wrongPort = fc.oneof(wrongNumber, fc.constantFrom(0, -1, 1.5, 65_536, Number.NaN))
const fileHere = import.meta.filename

async function* noPieces(): AsyncGenerator<Uint8Array> {}

/** A control socket of a VM and a run; `asked` has each request that does more than look. */
async function serve() {
  const asked: string[] = []
  const note = (name: string) => async () => {
    asked.push(name)
    throw new CaissonError('not_possible_now', `asked for ${name}`)
  }
  const refuse = (name: string) => async () => {
    asked.push(name)
    return { ok: false, error: { code: 'unavailable', message: 'not here' } } as const
  }
  const feed = new Feed()
  const ended = Promise.withResolvers<RunState>()
  const socket = path.join(await temporaryFolder('hostile'), 'control.sock')
  const server = await ControlServer.open(socket, {
    vm: {
      describe: () => info,
      inspect: note('inspect'),
      console: { text: () => '', onData: () => () => undefined },
      stop: () => void asked.push('stop'),
      setPaused: note('setPaused'),
      access: { openShell: refuse('shell'), openForward: refuse('forward') },
    },
    run: {
      watch: () => feed.watch(),
      answer: async (approvalId) => {
        asked.push('answer')
        return { taken: false, reason: 'unknown', message: approvalId }
      },
      revokeAnswer: note('revokeAnswer'),
      hasPendingApproval: () => false,
      fork: () => Promise.reject(new Error('there is no disk here')),
      cancel: note('cancel'),
      cancelAgent: note('cancelAgent'),
      steer: note('steer'),
      pause: note('pause'),
      resume: note('resume'),
      ended: ended.promise,
      journalHead: '',
    },
  })
  onTestFinished(async () => {
    feed.end()
    ended.resolve(initialRunState)
    await server[Symbol.asyncDispose]()
  })
  return { socket, asked }
}

type Method<H> = readonly [fc.Arbitrary<unknown>, (handle: H, value: never) => unknown]
interface Handle<H> {
  readonly type: { readonly prototype: H & object }
  /** Members without an argument. */
  readonly without: readonly string[]
  /** `asked`: what reached the other side. */
  open(): Promise<{ handle: H; asked: readonly string[] }>
  /** Each takes one value, and is nothing but a call of the public method. */
  readonly methods: Readonly<Record<string, Method<H>>>
}
const handleOf = <H>(handle: Handle<H>): Handle<never> => handle as never

/** What both kinds of a run have. */
const runMethods: Readonly<Record<string, Method<Run | RunClient>>> = {
  watch: [
    fc.oneof(
      wrongOptions,
      fc.record({ from: given.filter((value) => typeof value !== 'number') }),
      fc.record({ deltas: given.filter((value) => typeof value !== 'boolean') }),
    ),
    (run, value) => run.watch(value),
  ],
  hasPendingApproval: [wrongText, (run, value) => run.hasPendingApproval(value)],
  whenResolved: [wrongText, (run, value) => run.whenResolved(value)],
  answer: [wrongText, (run, value) => run.answer(value, { decision: 'allow', scope: 'once' })],
  'answer, its actor': [
    fc.oneof(wrongActor, fc.record({ via: given })),
    (run, value) => run.answer('a1', { decision: 'allow', scope: 'once' }, value),
  ],
  revokeAnswer: [wrongText, (run, value) => run.revokeAnswer(value)],
  'revokeAnswer, its actor': [wrongActor, (run, value) => run.revokeAnswer('a1', value)],
  steer: [wrongText, (run, value) => run.steer(value)],
  'steer, its actor': [
    fc.oneof(wrongActor, fc.record({ to: wrongText.filter((value) => value !== undefined) })),
    (run, value) => run.steer('x', value),
  ],
  cancelAgent: [wrongText, (run, value) => run.cancelAgent(value)],
  'cancelAgent, its actor': [
    fc.oneof(wrongActor, fc.record({ reason: wrongText.filter((value) => value !== undefined) })),
    (run, value) => run.cancelAgent('x', value),
  ],
  pause: [wrongActor, (run, value) => run.pause(value)],
  resume: [wrongActor, (run, value) => run.resume(value)],
  fork: [
    fc.oneof(
      fc.anything(),
      fc.record({ at: wrongText, count: fc.constant(1), prompts: fc.constant([]), by: fc.constant('me') }),
      fc.record({
        at: fc.constant('end'),
        count: fc.oneof(wrongText, fc.constantFrom(0, 17, 1.5)),
        prompts: given,
        by: given,
      }),
      fc.record({
        ...{ at: fc.constant('end'), count: fc.constant(1), prompts: fc.constant([]), by: fc.constant('me') },
        metadata: fc.constantFrom<unknown>(
          7,
          null,
          [1],
          { a: 1 },
          { 'a b': 'x' },
          { a: 'x'.repeat(limits.lineMaxChars + 1) },
        ),
      }),
    ),
    (run, value) => run.fork(value),
  ],
  cancel: [
    fc.oneof(wrongActor, fc.record({ now: wrongFlag.filter((value) => value !== undefined) })),
    (run, value) => run.cancel(value),
  ],
}

const handles: Readonly<Record<string, Handle<never>>> = {
  Run: handleOf<Run>({
    type: Run,
    without: ['state', 'journalHead', 'pendingCount', 'result', 'detach'],
    open: async () => ({ handle: await endedRun(), asked: [] }),
    methods: { ...runMethods, setVmPaused: [wrongFlag, (run, value) => run.setVmPaused(value)] },
  }),
  RunClient: handleOf<RunClient>({
    type: RunClient,
    without: ['pendingCount', 'result', 'detach'],
    open: async () => {
      const { socket, asked } = await serve()
      return { handle: await RunClient.connect(runId, socket), asked }
    },
    methods: runMethods,
  }),
  Sandbox: handleOf<Sandbox>({
    type: Sandbox,
    without: ['id', 'changes', 'close'],
    open: async () => {
      const { socket, asked } = await serve()
      const never = new Promise<never>(() => undefined)
      const dispose = async (): Promise<void> => undefined
      const owner = { stopped: never, exited: never, collect: () => never, [Symbol.asyncDispose]: dispose }
      return { handle: await Sandbox.open(socket, owner), asked }
    },
    methods: {
      exec: [fc.oneof(wrongNone, fc.constant(''), fc.array(wrongText)), (box, value) => box.exec(value)],
      'exec, its options': [
        fc.oneof(
          wrongOptions,
          fc.record({ cwd: wrongPath.filter((value) => value !== undefined) }),
          fc.record({ env: fc.dictionary(fc.string(), wrongText, { minKeys: 1 }) }),
          fc.record({ timeoutMs: wrongPort.filter((value) => value !== undefined && value !== 65_536) }),
          fc.record({ onStdout: given }),
        ),
        (box, value) => box.exec('true', value),
      ],
      readFile: [wrongPath, (box, value) => box.readFile(value)],
      'readFile, its options': [wrongOptions, (box, value) => box.readFile('a', value)],
      writeFile: [wrongPath, (box, value) => box.writeFile(value, 'x')],
      'writeFile, its data': [wrongText, (box, value) => box.writeFile('a', value)],
      'writeFile, its options': [wrongOptions, (box, value) => box.writeFile('a', 'x', value)],
      listFiles: [wrongPath.filter((value) => value !== undefined), (box, value) => box.listFiles(value)],
      'listFiles, its options': [wrongOptions, (box, value) => box.listFiles('.', value)],
      remove: [wrongPath, (box, value) => box.remove(value)],
      'remove, its options': [wrongOptions, (box, value) => box.remove('a', value)],
      copyOut: [wrongPath, (box, value) => box.copyOut(value, '/nowhere')],
      'copyOut, its place': [
        wrongPath.filter((value) => value !== '\ud800'),
        (box, value) => box.copyOut('a', value),
      ],
      'copyOut, its options': [wrongOptions, (box, value) => box.copyOut('a', '/nowhere', value)],
      copyIn: [wrongPath.filter((value) => value !== '\ud800'), (box, value) => box.copyIn(value, 'a')],
      'copyIn, its place': [wrongPath, (box, value) => box.copyIn(fileHere, value)],
      'copyIn, its options': [wrongOptions, (box, value) => box.copyIn(fileHere, 'a', value)],
      forward: [wrongPort, (box, value) => box.forward(value)],
      'forward, its options': [
        fc.oneof(wrongOptions, fc.record({ hostPort: wrongNumber.filter((value) => value !== undefined) })),
        (box, value) => box.forward(80, value),
      ],
    },
  }),
  VmClient: handleOf<VmClient>({
    type: VmClient,
    without: ['inspect'],
    open: async () => {
      const { socket, asked } = await serve()
      return { handle: await VmClient.connect(socket), asked }
    },
    methods: {
      console: [wrongOptions, (vm, value) => vm.console(value).next()],
      ended: [fc.anything(), (vm, value) => vm.ended(value)],
      stop: [
        fc.oneof(wrongOptions, fc.record({ now: wrongFlag.filter((value) => value !== undefined) })),
        (vm, value) => vm.stop(value),
      ],
      setPaused: [wrongFlag, (vm, value) => vm.setPaused(value)],
      openShell: [
        fc.oneof(
          fc.anything(),
          fc.record({ argv: fc.anything(), terminal: given.filter((value) => value !== null) }),
          fc.record({ argv: fc.array(wrongText, { minLength: 1 }), terminal: fc.constant(null) }),
        ),
        (vm, value) => vm.openShell(value),
      ],
      copyOut: [wrongPath, (vm, value) => vm.copyOut(value, '/nowhere')],
      copyIn: [wrongPath, (vm, value) => vm.copyIn(fileHere, value)],
      readArchive: [wrongPath, (vm, value) => vm.readArchive(value).next()],
      'readArchive, its options': [wrongOptions, (vm, value) => vm.readArchive('a', value).next()],
      writeArchive: [fc.anything(), (vm, value) => vm.writeArchive(value, 'a')],
      'writeArchive, its place': [wrongPath, (vm, value) => vm.writeArchive(noPieces(), value)],
      'writeArchive, its options': [wrongOptions, (vm, value) => vm.writeArchive(noPieces(), 'a', value)],
      forward: [
        fc.oneof(fc.anything(), fc.record({ guestPort: wrongPort })),
        (vm, value) => vm.forward(value),
      ],
    },
  }),
  Shell: handleOf<Shell>({
    type: Shell,
    without: ['kill'],
    open: async () => {
      const { socket } = await serve()
      const vm = await VmClient.connect(socket)
      return { handle: await vm.openShell({ argv: [], terminal: null }), asked: [] }
    },
    methods: {
      resize: [wrongNumber, (shell, value) => shell.resize(value, 1)],
      'resize, its rows': [wrongNumber, (shell, value) => shell.resize(1, value)],
    },
  }),
  RunChanges: handleOf<RunChanges>({
    type: RunChanges,
    without: ['directory', 'review', 'inspect', 'reviewWithDiffs', 'archive'],
    open: async () => {
      const { host } = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'A' })
      return { handle: await host.changes(changedRunId), asked: [] }
    },
    methods: {
      versions: [fc.oneof(wrongText, fc.string()), (changes, value) => changes.versions(value)],
      before: [wrongText, (changes, value) => changes.before(value)],
      hasReplaced: [wrongText, (changes, value) => changes.hasReplaced(value)],
      wentIn: [wrongText, (changes, value) => changes.wentIn(value)],
      apply: [
        fc.oneof(wrongText, fc.record({ paths: fc.oneof(wrongNone, fc.array(wrongText, { minLength: 1 })) })),
        (changes, value) => changes.apply(value),
      ],
      'apply, its options': [wrongOptions, (changes, value) => changes.apply('all', value)],
      undo: [wrongOptions, (changes, value) => changes.undo(value)],
    },
  }),
  RunNotes: handleOf<RunNotes>({
    type: RunNotes,
    without: ['pending', 'settled'],
    open: async () => {
      const { host } = await runThatProposed([proposed(1, 'one')])
      return { handle: await host.runNotes(proposingRunId), asked: [] }
    },
    methods: {
      decide: [
        fc.oneof(
          fc.anything(),
          given.map((decision) => new Map([[noteIdOf(1), decision]])),
          wrongText
            .filter((value) => value !== undefined)
            .map((text) => new Map([[noteIdOf(1), { keep: true, text }]])),
        ),
        (notes, value) => notes.decide(value, 'a test'),
      ],
      'decide, its actor': [wrongText, (notes, value) => notes.decide(new Map(), value)],
      keepThoseIn: [wrongText, (notes, value) => notes.keepThoseIn(value, 'a test')],
      'keepThoseIn, its actor': [wrongText, (notes, value) => notes.keepThoseIn('one', value)],
    },
  }),
}

/** A run that a hook refuses before it has a VM. */
async function refusedRun() {
  const { plan, runs } = await plannedRun()
  const hook = {
    name: 'a test',
    point: 'before-run',
    onFailure: 'deny',
    ask: async () => ({ ok: false as const, error: 'there is no VM here' }),
  } as const
  return { plan: { ...plan, hooks: [hook] }, runs }
}

async function endedRun(): Promise<Run> {
  const { plan, runs } = await refusedRun()
  const run = new Run(plan, await RunRecord.open(await runs.create(runId)))
  expect((await run.ended).end).toMatchObject({ reason: 'denied' })
  return run
}

const cases = Object.entries(handles).flatMap(([name, { methods }]) =>
  Object.keys(methods).map((method) => [name, method] as const),
)

describe('a handle that is given what it cannot use', () => {
  it.each(cases)('refuses it with a code, and passes nothing on: %s.%s [E.01]', async (name, method) => {
    const entry = handles[name] as Handle<never>
    const [values, call] = entry.methods[method] as Method<never>
    const { handle, asked } = await entry.open()
    await fc.assert(
      fc.asyncProperty(values, async (value) => {
        const thrown = await thrownBy(() => call(handle, value as never))
        expectRefusal(thrown)
        expect((thrown as CaissonError).code, String(thrown)).toBe('invalid_options')
        expect(asked).toEqual([])
      }),
      hostileRuns,
    )
  })

  it.each(Object.keys(handles))('has a test of each method that takes an argument: %s [E.01]', (name) => {
    const { type, methods, without } = handles[name] as Handle<never>
    const own = Object.getOwnPropertyNames(type.prototype).filter((member) => member !== 'constructor')
    const tested = Object.keys(methods).filter((method) => /^\w+$/.test(method))
    expect(own.toSorted()).toEqual([...tested, ...without].toSorted())
  })

  it('does not take an answer that is none, and waits for no other approval [E.01]', async () => {
    const { socket, asked } = await serve()
    const run = await RunClient.connect(runId, socket)
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.anything(), fc.constant({ type: 'cancel' })), async (answer) => {
        expect(await run.answer('a1', answer as never)).toMatchObject({ taken: false, reason: 'not_offered' })
        expect(asked).toEqual([])
      }),
      hostileRuns,
    )
    const other = { decision: 'allow', scope: 'once', approvalId: 'a2' } as const
    expect(await run.answer('a1', other)).toMatchObject({ taken: false, reason: 'unknown', message: 'a1' })
  })
})

describe('a task that the agent cannot be given', () => {
  const hook = { point: 'before-tool', run: () => undefined } as const
  const offer = { description: 'x', inputSchema: { type: 'object' }, execute: () => 'x' }
  const toolNames = Array.from({ length: 129 }, (_, index) => `tool_${index}`)
  it.each<[string, Partial<PlannedRun>]>([
    ['hooks: must have at most 64', { hooks: Array.from({ length: 65 }, () => codeHook(hook)) }],
    [
      'hostTools: must have at most 128',
      { hostTools: prepareHostTools(Object.fromEntries(toolNames.map((name) => [name, offer]))) },
    ],
    ['expected at most 1047552', { context: { a: 'x'.repeat(262_144), b: '\u0001'.repeat(262_144) } }],
  ])('is refused before a VM starts for it: %s [E.01]', async (problem, options) => {
    const { plan } = await refusedRun()
    requireTask(plan)
    expect(() => requireTask({ ...plan, ...options })).toThrow(
      expect.objectContaining({ code: 'invalid_options', message: expect.stringContaining(problem) }),
    )
  })
})
