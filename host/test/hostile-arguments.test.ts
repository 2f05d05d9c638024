// What an application may get wrong: each public method of a host is given values of every type. Nothing is started.
import path from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CaissonError, withCode } from '#specs/errors.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { checkRunOptions } from '../check-options.ts'
import { Host } from '../host.ts'
import { WorkspaceManager } from '../workflows/workspace-manager.ts'
import { expectRefusal, hostileRuns, thrownBy, wrongOptions, wrongText } from './support/hostile-values.ts'

const someWorkflow = new WorkspaceManager().parse(
  '{"A@1#details": {"steps": [{"id": "a"}]}, "A@1@step-a#details": {"chat": [{"role": "user", "content": "x"}]}}',
)
const anyText = fc.oneof(wrongText, fc.string(), fc.constantFrom('last', 'run-', '\0', '../..', 'a/b'))
const runOptions = fc.oneof(
  fc.anything().filter((value) => value !== undefined),
  fc.record(
    {
      prompt: wrongText,
      workspace: fc.anything(),
      limits: fc.anything(),
      files: fc.anything(),
      approvals: fc.anything(),
      vm: fc.anything(),
      tools: fc.anything(),
      extensions: fc.anything(),
      plan: fc.anything(),
      egress: fc.anything(),
    },
    { requiredKeys: ['prompt'] },
  ),
  // Options of the right types whose content cannot be.
  fc.record({
    prompt: fc.constant('x'),
    plan: fc.record({ from: fc.anything().filter((value) => value !== undefined) }),
  }),
  fc.record({ prompt: fc.constant('x'), workspace: fc.constantFrom('/', '/nowhere', '\0') }),
  fc.record({ prompt: fc.constant('x'), continue: fc.string({ minLength: 1 }) }),
  fc.record({
    prompt: fc.constant('x'),
    images: fc.array(anyText, { minLength: 1 }),
  }),
)

async function makeHost(): Promise<Host> {
  const home = path.join(await temporaryFolder('hostile'), 'home')
  return new Host({ env: { PATH: process.env.PATH, HOME: home, CAISSON_HOME: home } })
}

/** Each takes one value, and is nothing but a call of the public method. */
const methods: Readonly<Record<string, [fc.Arbitrary<unknown>, (host: Host, value: never) => unknown]>> = {
  run: [runOptions, (host, value) => host.run(value)],
  runAs: [anyText, (host, value) => host.runAs(value, { prompt: 'x', workspace: '/nowhere' })],
  'runAs, its options': [runOptions, (host, value) => host.runAs('run-0123456789abcdef0123', value)],
  sandbox: [
    fc.oneof(
      wrongOptions,
      fc.record({ workspace: fc.constantFrom('', '/', '/nowhere', 1, null) }),
      fc.record({ vm: fc.constantFrom(null, 1, { nope: 1 }, { hibernateAfterMs: 1 }, { cpus: 0 }) }),
      fc.record({ egress: fc.constantFrom(null, 1, { rules: [{ nope: 1 }] }, { nope: 1 }) }),
      fc.record({ secrets: fc.constantFrom(null, 1, 'NAME', [1], [''], ['NO_SUCH_SECRET'], { NAME: 'x' }) }),
    ),
    (host, value) => host.sandbox(value),
  ],
  provider: [wrongOptions, (host, value) => host.provider(value)],
  egressPolicy: [
    fc.anything().filter((value) => value !== undefined && !(Array.isArray(value) && value.length === 0)),
    (host, value) => host.egressPolicy(value),
  ],
  image: [wrongOptions, (host, value) => host.image(value)],
  warm: [wrongOptions, (host, value) => host.warm(value)],
  watchRuns: [wrongOptions, async (host, value) => await host.watchRuns(value).next()],
  observeRuns: [
    fc.oneof(fc.anything(), fc.record({ event: fc.anything(), end: fc.anything() })),
    (host, value) => host.observeRuns(value),
  ],
  doctor: [wrongOptions, (host, value) => host.doctor(value)],
  attach: [anyText, (host, value) => host.attach(value)],
  reach: [anyText, (host, value) => host.reach(value)],
  checkRun: [wrongOptions, (host, value) => host.checkRun(value)],
  resume: [anyText, (host, value) => host.resume(value)],
  startWorkflow: [
    fc.oneof(anyText, fc.anything(), fc.constant(new URL('https://example.com/a'))),
    (host, value) => host.startWorkflow(value),
  ],
  'startWorkflow, its options': [
    fc.oneof(
      wrongOptions,
      fc.record({ prompt: fc.anything() }),
      fc.record({ store: fc.constantFrom(null, 5, 'x', {}, { get: () => null }) }),
      fc.record({ functions: fc.constantFrom(null, 5, 'x', [1], { a: 1 }, { a: null }, { a: {} }) }),
    ),
    (host, value) => host.startWorkflow(someWorkflow, value),
  ],
  startWorkflowAs: [anyText, (host, value) => host.startWorkflowAs(value, someWorkflow)],
  'startWorkflowAs, its workflow': [
    fc.anything(),
    (host, value) => host.startWorkflowAs('run-0123456789abcdef0123', value),
  ],
  fork: [anyText, (host, value) => host.fork(value, { at: 'end' })],
  'fork, its options': [wrongOptions, (host, value) => host.fork('run-0123456789abcdef0123', value)],
  rewind: [anyText, (host, value) => host.rewind(value, { to: 'end' })],
  compare: [anyText, (host, value) => host.compare([value, value])],
  blame: [anyText, (host, value) => host.blame(value, 'a')],
  'blame, its path': [wrongText, (host, value) => host.blame('run-0123456789abcdef0123', value)],
  'blame, its options': [wrongOptions, (host, value) => host.blame('run-0123456789abcdef0123', 'a', value)],
  testRun: [anyText, (host, value) => host.testRun(value, 'true')],
  merge: [anyText, (host, value) => host.merge([value, value])],
  'merge, its options': [
    fc.oneof(wrongOptions, fc.record({ metadata: fc.constantFrom(null, 1, 'a', { a: 1 }, { 'a b': 'c' }) })),
    (host, value) => host.merge(['a', 'b'], [], value),
  ],
  'resume, its options': [wrongOptions, (host, value) => host.resume('run-0123456789abcdef0123', value)],
  replay: [anyText, (host, value) => host.replay(value)],
  'replay, its options': [wrongOptions, (host, value) => host.replay('run-0123456789abcdef0123', value)],
  exportRun: [anyText, (host, value) => host.exportRun(value, new PassThrough())],
  'exportRun, its stream': [
    fc.anything(),
    (host, value) => host.exportRun('run-0123456789abcdef0123', value),
  ],
  'exportRun, its options': [
    wrongOptions,
    (host, value) => host.exportRun('run-0123456789abcdef0123', new PassThrough(), value),
  ],
  importRun: [fc.anything(), (host, value) => host.importRun(value)],
  'importRun, its options': [wrongOptions, (host, value) => host.importRun(Readable.from([]), value)],
  unpackWorkspace: [fc.anything(), (host, value) => host.unpackWorkspace(value, '/nowhere/new')],
  packWorkspace: [wrongText, (host, value) => host.packWorkspace(value).read()],
  'unpackWorkspace, its folder': [wrongText, (host, value) => host.unpackWorkspace(Readable.from([]), value)],
  'unpackWorkspace, its options': [
    wrongOptions,
    (host, value) => host.unpackWorkspace(Readable.from([]), '/nowhere/new', value),
  ],
  answer: [anyText, (host, value) => host.answer(value, 'ap-1', { decision: 'allow', scope: 'once' })],
  'answer, its approval': [
    wrongText,
    (host, value) => host.answer('run-0123456789abcdef0123', value, {} as never),
  ],
  revokeAnswer: [anyText, (host, value) => host.revokeAnswer(value, 'ap-1')],
  'revokeAnswer, its approval': [
    wrongText,
    (host, value) => host.revokeAnswer('run-0123456789abcdef0123', value),
  ],
  cancel: [anyText, (host, value) => host.cancel(value)],
  'cancel, its options': [wrongOptions, (host, value) => host.cancel('run-0123456789abcdef0123', value)],
  changes: [anyText, (host, value) => host.changes(value)],
  undo: [anyText, (host, value) => host.undo(value)],
  'undo, its options': [wrongOptions, (host, value) => host.undo('run-0123456789abcdef0123', value)],
  openJwt: [wrongOptions, (host, value) => host.openJwt(value)],
  runNotes: [anyText, (host, value) => host.runNotes(value)],
  trace: [anyText, (host, value) => host.trace(value)],
  heldByRules: [wrongText.filter((value) => value !== undefined), (host, value) => host.heldByRules(value)],
  inspectPaths: [
    wrongText.filter((value) => !Array.isArray(value)),
    (host, value) => host.inspectPaths(value as never),
  ],
  'inspectPaths, its options': [wrongOptions, (host, value) => host.inspectPaths(['a'], value as never)],
  'runs.find': [anyText, (host, value) => host.runs.find(value)],
  'runs.read': [anyText, (host, value) => host.runs.read(value)],
  'runs.stream': [anyText, async (host, value) => await host.runs.stream(value).next()],
  'runs.fold': [anyText, (host, value) => host.runs.fold(value)],
  'runs.summary': [wrongText, (host, value) => host.runs.summary(value)],
  'runs.appliedHere': [anyText, (host, value) => host.runs.appliedHere(value)],
  'runs.pendingApprovals, its bounds': [
    wrongOptions,
    (host, value) => host.runs.pendingApprovals(undefined, value),
  ],
  'runs.pendingApprovals': [
    wrongText.filter((value) => value !== undefined),
    (host, value) => host.runs.pendingApprovals(value),
  ],
  'runs.runAnswers': [anyText, (host, value) => host.runs.runAnswers(value)],
  'runs.image': [anyText, (host, value) => host.runs.image(value, 'a'.repeat(64))],
  'runs.image, its digest': [anyText, (host, value) => host.runs.image('run-0123456789abcdef0123', value)],
  'runs.select': [wrongOptions, (host, value) => host.runs.select(value)],
  'runs.remove': [wrongText, (host, value) => host.runs.remove(value)],
  'vms.socketOf': [wrongText, (host, value) => host.vms.socketOf(value)],
  'vms.find': [anyText, (host, value) => host.vms.find(value)],
  'apiKeys.create': [wrongOptions, (host, value) => host.apiKeys.create(value)],
  'apiKeys.revoke': [wrongText, (host, value) => host.apiKeys.revoke(value)],
  'apiKeys.recognize': [wrongText, (host, value) => host.apiKeys.recognize(value)],
  'apiKeys.isValid': [wrongText, (host, value) => host.apiKeys.isValid(value)],
  'mcpPins.forget': [wrongText, (host, value) => host.mcpPins.forget(value)],
  'notes.change': [
    fc.anything().filter((value) => typeof value !== 'function'),
    (host, value) => host.notes.change(value),
  ],
  'grants.add': [
    fc.anything().filter((value) => !(Array.isArray(value) && value.length === 0)),
    (host, value) => host.grants.add(value, 'run-0123456789abcdef0123'),
  ],
  'grants.revoke': [
    fc.anything().filter((value) => typeof value !== 'number'),
    (host, value) => host.grants.revoke(value),
  ],
  'secrets.set': [
    wrongText,
    (host, value) => host.secrets.set(value, { hosts: ['a.test'], value: 'abcdef' }),
  ],
  'secrets.set, its setting': [fc.anything(), (host, value) => host.secrets.set('TOKEN', value)],
  'secrets.revoke': [wrongText, (host, value) => host.secrets.revoke(value)],
}

describe('a host that is given what it cannot use', () => {
  it.each(Object.keys(methods))('refuses it with a code: %s [E.01]', async (name) => {
    const [values, call] = methods[name] ?? [fc.anything(), () => undefined]
    const host = await makeHost()
    await fc.assert(
      fc.asyncProperty(values, async (value) => {
        expectRefusal(await thrownBy(() => call(host, value as never)))
      }),
      hostileRuns,
    )
  })

  it('has a test of each of its methods that takes an argument [E.01]', () => {
    const own = Object.getOwnPropertyNames(Host.prototype).filter((name) => name !== 'constructor')
    const without = ['config', 'close', 'templates', 'openIndex', 'openMessenger', 'skills']
    expect(own.toSorted()).toEqual(
      [...new Set([...Object.keys(methods).filter((name) => /^\w+$/.test(name)), ...without])].toSorted(),
    )
  })

  it('refuses its own options likewise [E.01]', () => {
    fc.assert(
      fc.property(wrongOptions, (options) => {
        expect(() => new Host(options as never)).toThrow(expect.objectContaining({ code: 'invalid_options' }))
      }),
      hostileRuns,
    )
  })

  it('says what is closed, and what is not a run, in a code of its own [E.01]', async () => {
    const host = await makeHost()
    await expect(host.changes('run-nope')).rejects.toMatchObject({ code: 'run_not_found' })
    await host.close()
    await expect(host.run({ prompt: 'x' })).rejects.toMatchObject({ code: 'not_possible_now' })
  })

  it('that is closed while a run or a sandbox starts has started neither once it is closed [E.01]', async () => {
    const host = await makeHost()
    const workspace = await temporaryFolder('workspace')
    const starts = [host.run({ prompt: 'x', workspace }), host.sandbox({ workspace })]
    const ended = Promise.allSettled(starts)
    await host.close()
    for (const start of await ended)
      expect(start).toMatchObject({ status: 'rejected', reason: { code: 'not_possible_now' } })
    expect(await host.runs.list()).toEqual([])
    expect(await host.vms.list()).toEqual([])
  })

  it('is cancelled by the caller’s signal with a code, whatever its reason is [E.01]', async () => {
    const host = await makeHost()
    const signal = AbortSignal.abort(new Error('mine'))
    await expect(host.image({ signal })).rejects.toMatchObject({ code: 'cancelled' })
  })

  const trap = () => {
    throw new Error('mine')
  }
  const unreadable = new Proxy({}, { get: trap, has: trap, ownKeys: trap, getPrototypeOf: trap })
  const throwing = (name: string): never =>
    Object.defineProperty({ prompt: 'x' }, name, { get: trap, enumerable: true }) as never
  const cyclic: Record<string, unknown> = { type: 'object' }
  cyclic.properties = { self: cyclic }
  const hostTool = { description: 'x', inputSchema: cyclic, execute: () => 'x' }

  it.each<[string, (host: Host) => unknown]>([
    ['run', (host) => host.run(unreadable as never)],
    ['a field of run', (host) => host.run(throwing('limits'))],
    ['the signal of run', (host) => host.run(throwing('signal'))],
    ['sandbox', (host) => host.sandbox(unreadable as never)],
    ['the signal of sandbox', (host) => host.sandbox(throwing('signal'))],
    ['the signal of image', (host) => host.image(throwing('signal'))],
    ['the signal of warm', (host) => host.warm(throwing('signal'))],
    ['the signal of undo', (host) => host.undo('run-0123456789abcdef0123', throwing('signal'))],
    ['the signal of watchRuns', (host) => host.watchRuns(throwing('signal'))],
    ['the host', () => new Host(throwing('pool'))],
    ['variables that are no text', () => new Host({ env: { HOME: 1 } as never })],
    ['a host tool', (host) => host.run({ prompt: 'x', extensions: { hostTools: { t: hostTool } } })],
    ['a recording', (host) => host.run({ prompt: 'x', replay: '/tmp/\0' })],
  ])('refuses what throws when it is read, is cyclic or no path: %s [E.01]', async (_, call) => {
    const host = await makeHost()
    expect(await thrownBy(() => call(host))).toMatchObject({ name: 'OptionsError', code: 'invalid_options' })
  })

  it('refuses a plan that is cyclic or throws when it is read [E.01]', async () => {
    const host = await makeHost()
    const step = { id: 'a', title: 'a', instructions: 'x', output: cyclic }
    for (const from of [{ goal: 'x', steps: [step] }, throwing('steps')])
      expect(await thrownBy(() => host.run({ prompt: 'x', plan: { from } as never }))).toBeInstanceOf(
        CaissonError,
      )
  })

  it('reads each option once, so that what it uses is what it checked [E.01]', () => {
    let reads = 0
    const model = { get: () => (reads++ === 0 ? 'm' : 1), enumerable: true }
    const rules: { effect: 'deny'; host: string }[] = []
    const given = Object.defineProperty({ prompt: 'x', egress: { rules } }, 'model', model)
    const checked = checkRunOptions(given)
    rules.push({ effect: 'deny', host: 'a.test' })
    expect([checked.model, checked.egress?.rules]).toEqual(['m', []])
  })

  it('has a code for thrown values that cannot be read [E.01]', async () => {
    const thrown = await thrownBy(() => withCode(() => Promise.reject(unreadable)))
    expect(thrown).toMatchObject({ code: 'internal', message: 'a value that cannot be shown was thrown' })
  })
})
