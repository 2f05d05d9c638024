// What an application passes for a run, right or wrong. Nothing is started.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ruleCall } from '../approvals/answers.ts'
import {
  checkCallOptions,
  checkModelOptions,
  checkRunOptions,
  checkSandboxOptions,
  OptionsError,
} from '../check-options.ts'
import { Host, type HostOptions, type RunOptions } from '../host.ts'
import { createMemoryNotes } from '../memory/note-storages.ts'
import { FolderWorkflowStore } from '../workflows/folder-store.ts'

const wrong: [string, object, string[], RegExp][] = [
  ['an empty prompt', { prompt: '' }, ['prompt'], /may be empty only with plan\.from/],
  ['a blank prompt', { prompt: ' \n' }, ['prompt'], /expected what the agent should do/],
  ['no prompt', { prompt: undefined }, ['prompt'], /prompt: is missing; must be text/],
  [
    'an unknown way of approval',
    { approvals: { mode: 'nonsense' } },
    ['approvals.mode'],
    /must be one of "ask", "all", "none", got "nonsense"/,
  ],
  [
    'an unknown limit',
    { limits: { maxTurns: -1 } },
    ['limits.maxTurns'],
    /the names are maxTurnsPerStep, maxToolCalls/,
  ],
  [
    'a limit out of range',
    { limits: { maxTokens: 0, maxWallMs: 1 } },
    ['limits.maxWallMs', 'limits.maxTokens'],
    /limits.maxTokens: must be 1 or more, got 0/,
  ],
  [
    'an unknown field of a rule',
    { approvals: { rules: [{ nope: 1 }] } },
    ['approvals.rules.0.effect', 'approvals.rules.0.tool', 'approvals.rules.0.nope'],
    /the names are effect, tool/,
  ],
  [
    'an unknown option',
    { aprove: 'all' },
    ['aprove'],
    /no option has this name; the names are prompt, workspace,.* approvals,/,
  ],
  [
    'an unknown option of a group',
    { approvals: { approve: 'all' } },
    ['approvals.approve'],
    /no option has this name; the names are mode, rules, interactive/,
  ],
  [
    'an option outside its group',
    { vm: { keepVm: true }, plan: { mode: 'plan' } },
    ['plan.mode', 'vm.keepVm'],
    /the names are only, from, approve/,
  ],
  ['a number for a plan', { plan: { from: 7 } }, ['plan.from'], /expected a plan, a run or a file/],
  [
    'too little memory',
    { vm: { memoryBytes: 1 } },
    ['vm.memoryBytes'],
    /expected memory of 256 to .*, seen: 1 B/,
  ],
  ['too many processors', { vm: { cpus: 1.5 } }, ['vm.cpus'], /1 to 64 CPUs/],
  ['an unknown accelerator', { vm: { accelerator: 'xen' } }, ['vm.accelerator'], /"kvm"/],
  ['a list of tools that is none', { tools: ['a', 1] }, ['tools'], /a map from names to true or false/],
  [
    'a hook without a function',
    { extensions: { hooks: [{ point: 'before-tool' }] } },
    ['extensions.hooks.0.run'],
    /expected a function/,
  ],
  [
    'an unknown point of a hook',
    { extensions: { hooks: [{ point: 'then', run: () => undefined }] } },
    ['extensions.hooks.0.point'],
    /before-tool/,
  ],
  [
    'a tool without a function',
    { extensions: { hostTools: { t: { description: 'd', inputSchema: {} } } } },
    ['extensions.hostTools.t.execute'],
    /function/,
  ],
  [
    'a rule of egress that is none',
    { egress: { rules: [{ effect: 'allow' }] } },
    ['egress.rules.0.host'],
    /must be text/,
  ],
  [
    'an address in place of a host',
    { egress: { rules: [{ effect: 'allow', host: 'https://example.com' }] } },
    ['egress.rules.0.host'],
    /expected a name \(example\.com\)/,
  ],
  [
    'a path that servers read in different ways',
    { egress: { rules: [{ effect: 'allow', host: 'example.com', path: '/a/../b' }] } },
    ['egress.rules.0.path'],
    /write it plainly/,
  ],
  ['an image without a name', { images: [''] }, ['images.0'], /images\.0/],
  ['an image whose path has a NUL', { images: ['a\0.png'] }, ['images.0'], /without NUL/],
  ['too many images', { images: Array.from({ length: 9 }, () => 'a.png') }, ['images'], /images/],
  ['a folder that is only a path', { folders: ['/data'] }, ['folders.0'], /folders\.0/],
  [
    'a name of a folder that leads elsewhere',
    { folders: [{ path: '/data', name: '../x' }] },
    ['folders.0.name'],
    /expected 1 to 64 letters/,
  ],
  [
    'a name of a folder that no file system takes',
    { folders: [{ path: '/data', name: '\u{20000}'.repeat(64) }] },
    ['folders.0.name'],
    /at most 255 bytes/,
  ],
  ['a NUL in a folder', { folders: [{ path: 'a\0b' }] }, ['folders.0.path'], /without NUL/],
  ['too many folders', { folders: Array(17).fill({ path: 'a' }) }, ['folders'], /at most 16/],
  ['a content outside', { files: { contents: { '../a': 'b' } } }, ['files.contents.../a'], /relative path/],
  [
    'too many contents',
    { files: { contents: Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`a${at}`, 'b'])) } },
    ['files.contents'],
    /at most 64 files/,
  ],
  [
    'a content that is no base64',
    { files: { contents: { a: { base64: '?' } } } },
    ['files.contents.a.base64'],
    /base64/,
  ],
  ['too many patterns', { files: { include: Array(1_001).fill('a') } }, ['files.include'], /at most 1000/],
  [
    'too many facts',
    { context: Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`a${at}`, 'b'])) },
    ['context'],
    /at most 1,000 facts/,
  ],
  ['a directory of a megabyte', { workspace: 'a'.repeat(2 ** 20) }, ['workspace'], /at most 4096/],
  [
    'a word for yes or no',
    { approvals: { interactive: 'yes' } },
    ['approvals.interactive'],
    /must be true or false, got "yes"/,
  ],
  ['a disk that is none', { vm: { disk: null } }, ['vm.disk'], /expected a disk image/],
  ['a text for a disk', { vm: { disk: 'root.qcow2' } }, ['vm.disk'], /expected a disk image/],
  [
    'a tool without a schema',
    { extensions: { hostTools: { t: { description: 'd', inputSchema: null, execute: () => 1 } } } },
    ['extensions.hostTools.t.inputSchema'],
    /expected a schema/,
  ],
  [
    'more rules than anybody reads',
    { approvals: { rules: Array.from({ length: 1_001 }, () => ({ effect: 'allow', tool: 'x' })) } },
    ['approvals.rules'],
    /1000/,
  ],
  ['a signal that is none', { signal: {} }, ['signal'], /AbortSignal/],
  ['a number for a path', { workspace: 7 }, ['workspace'], /must be text, got 7/],
]

async function emptyHost() {
  const home = path.join(await temporaryFolder('options'), 'home')
  return { home, host: new Host({ env: { PATH: process.env.PATH, HOME: home, CAISSON_HOME: home } }) }
}

describe('the options of a run', () => {
  it.each(wrong)('are refused with the name of the field: %s [H.01]', async (_, options, fields, message) => {
    const { home, host } = await emptyHost()
    const error = await host.run({ prompt: 'x', ...options } as RunOptions).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(OptionsError)
    expect((error as OptionsError).fields).toEqual(fields)
    expect((error as OptionsError).message).toMatch(message)
    expect((error as OptionsError).message).toContain(fields[0])
    // Neither a state folder nor a run.
    await expect(readdir(home)).rejects.toThrow('ENOENT')
  })

  it('are taken where they are right, each of them [H.01]', () => {
    const all: Required<RunOptions> = {
      prompt: 'x',
      images: ['mockup.png'],
      metadata: { ticket: 'T-1' },
      outputSchema: { type: 'object' },
      context: { branch: 'main' },
      workspace: '.',
      folders: [{ path: '../data' }, { path: '../more', name: 'Größe_1.b-c' }],
      files: {
        include: ['*.env'],
        acceptIgnoreRules: true,
        contents: { 'a.txt': 'b', 'c.png': { base64: 'AAAA' } },
      },
      plan: { only: false, from: { goal: 'g', steps: [] }, approve: true },
      model: 'm',
      effort: 'low',
      fallback: ['other/model'],
      stepModels: { fast: 'other/model' },
      tools: { run_bash: false },
      extensions: {
        hostTools: { t: { description: 'd', inputSchema: {}, execute: () => 1 } },
        mcpServers: { clock: { command: 'clock' } },
        hooks: [{ point: 'before-tool', run: () => undefined }],
      },
      limits: { maxTokens: 1 },
      vm: {
        memoryBytes: 512 * 1024 ** 2,
        cpus: 1,
        diskBytes: 1024 ** 3,
        start: 'cold',
        confine: 'auto',
        hibernateAfterMs: 0,
        sleepAfterMs: 0,
        keep: true,
      },
      queue: { lane: 'ci', priority: 'low', startWithinMs: 60_000 },
      approvals: { mode: 'none', rules: [{ effect: 'allow', tool: '*' }], interactive: true },
      egress: { rules: [{ effect: 'allow', host: 'pypi.org' }] },
      leaveOnSleep: true,
      continue: 'last',
      onApproval: () => 'deny',
      onProgress: () => undefined,
      onNotes: () => undefined,
      replay: 'last',
      signal: new AbortController().signal,
    }
    expect(() => checkRunOptions(all)).not.toThrow()
    expect(() => checkRunOptions({ prompt: '', plan: { from: 'last' } })).not.toThrow()
  })

  it('of egress are checked wherever they are given [G.02]', async () => {
    const { host } = await emptyHost()
    await expect(host.egressPolicy([{ effect: 'let', host: 'a.example' } as never])).rejects.toThrow(
      OptionsError,
    )
  })
})

describe('the options of a call and of a sandbox', () => {
  const signal = new AbortController().signal
  const onProgress = () => undefined

  it('are taken where they are right, each of them [H.01]', () => {
    expect(() => checkCallOptions({ signal, onProgress })).not.toThrow()
    expect(() => checkModelOptions({ model: 'm', replay: 'last' })).not.toThrow()
    const vm = { disk: { file: 'root.qcow2' }, start: 'cold', cpus: 1 } as never
    const egress = { rules: [{ effect: 'allow', host: 'pypi.org' }] } as const
    expect(() =>
      checkSandboxOptions({ workspace: '.', egress, secrets: ['KEY'], signal, onProgress, vm }),
    ).not.toThrow()
    const hooks = (['allow', 'deny'] as const).map((onFailure) => ({
      point: 'before-tool' as const,
      run: () => undefined,
      onFailure,
    }))
    const rules = Array.from({ length: 1_000 }, () => ({ effect: 'allow', tool: 'x' }) as const)
    expect(() => checkRunOptions({ prompt: 'x', extensions: { hooks }, approvals: { rules } })).not.toThrow()
    expect(() => new Host({ pool: { size: 0, maxVms: 1 } })).not.toThrow()
  })

  it.each<[string, (options: never) => void]>([
    ['call', checkCallOptions],
    ['call', checkModelOptions],
    ['sandbox', checkSandboxOptions],
  ])('are refused with the name of the field: %s [H.01]', (what, check) => {
    const error = thrownBy(() => check({ sginal: signal } as never))
    expect(error).toMatchObject({ fields: ['sginal'] })
    expect((error as OptionsError).message).toContain(`the options of the ${what} cannot be used`)
  })
})

describe('the options of a host', () => {
  it.each<[string, object, string[], RegExp]>([
    [
      'an unknown option',
      { cofig: {} },
      ['cofig'],
      /the names are pool, queue, config, overrides, fences, apiKeys, notes, workflows, env/,
    ],
    ['a size below zero', { pool: { size: -4 } }, ['pool.size'], /must be 0 or more, got -4/],
    ['a queue without a run at work', { queue: { maxAtWork: 0 } }, ['queue.maxAtWork'], /must be 1 or more/],
    ['a pool without a size', { pool: {} }, ['pool.size'], /is missing; must be a number/],
    ['an unknown field of a pool', { pool: { size: 1, max: 2 } }, ['pool.max'], /names are size, maxVms/],
    ['an unknown field of its VMs', { pool: { size: 1, vm: { ram: 2 } } }, ['pool.vm.ram'], /memoryBytes/],
    ['a start for its VMs', { pool: { size: 1, vm: { start: 'cold' } } }, ['pool.vm.start'], /memoryBytes/],
    ['a word for the environment', { env: 'HOME=/tmp' }, ['env'], /a map of variables/],
    [
      'an unknown setting',
      { config: { modle: 'm' } },
      ['config.modle'],
      /config\.modle: no option has this name/,
    ],
    [
      'a setting of another type',
      { config: { limits: { maxTurns: 'a' } } },
      ['config.limits.maxTurns'],
      /limits\.maxTurns/,
    ],
  ])('are refused with the name of the field: %s [H.01]', (_, options, fields, message) => {
    const error = thrownBy(() => new Host(options as HostOptions))
    expect(error).toBeInstanceOf(OptionsError)
    expect((error as OptionsError).fields).toEqual(fields)
    expect((error as OptionsError).message).toMatch(message)
  })

  it('are taken where they are right, each of them [H.01]', () => {
    const pool = { size: 0, maxVms: 2, maxMemoryBytes: 1024 ** 3, waitMs: 0, vm: { cpus: 1 } }
    const all: Required<HostOptions> = {
      pool,
      queue: { maxAtWork: 1, maxWaiting: 0, maxWaitingPerLane: 0 },
      config: { model: 'm' },
      overrides: ['model=x'],
      fences: { of: () => undefined },
      apiKeys: { place: 'a store', read: async () => ({ keys: [] }), change: async () => undefined },
      notes: createMemoryNotes(),
      workflows: new FolderWorkflowStore('/tmp'),
      env: { HOME: '/tmp', PATH: undefined },
    }
    expect(() => new Host(all)).not.toThrow()
    expect(() => new Host({ env: process.env })).not.toThrow()
  })
})

function thrownBy(act: () => unknown): unknown {
  try {
    return act()
  } catch (error) {
    return error
  }
}

describe('a run that is not there', () => {
  it.each(['run-nope', 'last', 'run-0123456789abcdef0123', ''])(
    'is an unknown run by every way in: %j [H.01]',
    async (name) => {
      const { host } = await emptyHost()
      await expect(host.changes(name)).rejects.toMatchObject({ code: 'run_not_found' })
      await expect(host.runNotes(name)).rejects.toMatchObject({ code: 'run_not_found' })
      await expect(host.attach(name)).rejects.toMatchObject({ code: 'run_not_found' })
      await expect(host.runs.read(name)).rejects.toMatchObject({ code: 'run_not_found' })
    },
  )
})

it('a call that nobody answers is denied, with what to pass to allow it [S1.11 H.01]', () => {
  const request = {
    approvalId: 'a',
    runId: 'run-0123456789abcdef0123',
    agentPath: 'root',
    stepId: 's',
    callId: 'c',
    tool: 'delete_file',
    arguments: '{}',
    preview: '',
  }
  const ruling = ruleCall(request, { mode: 'ask', rules: [], interactive: false }, undefined)
  expect(ruling).toMatchObject({ decision: 'deny', by: 'mode' })
  for (const way of ['option approvals.mode: all', 'option approvals.rules', 'onApproval', 'run.answer'])
    expect(ruling?.rule).toContain(way)
})

it('an application that learns of nothing else is warned once of a key that is not read [S0.09]', async () => {
  const home = await temporaryFolder('warned')
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    CAISSON_HOME: home,
    OPENAI_API_KEY: 'sk-abcdefghijklmnop',
  }
  const host = new Host({ env })
  const warnings: Error[] = []
  const onWarning = (warning: Error): void => void warnings.push(warning)
  process.on('warning', onWarning)
  try {
    const workspace = await temporaryFolder('workspace')
    // Of options that cannot be used nothing but what is wrong is said.
    await expect(host.run({ prompt: 'x', workspace: '/' })).rejects.toThrow('workspace')
    await new Promise((resolve) => setImmediate(resolve))
    expect(warnings.filter(({ name }) => name === 'CaissonWarning')).toEqual([])
    // Given up before anything starts.
    const ended = { prompt: 'x', workspace, signal: AbortSignal.abort(new Error('given up')) }
    const notes: string[] = []
    for (const more of [
      {},
      {},
      { onProgress: () => undefined },
      { onNotes: (all: readonly string[]) => void notes.push(...all) },
    ])
      await expect(host.run({ ...ended, ...more })).rejects.toMatchObject({ code: 'cancelled' })
    expect(notes.join()).toContain('OPENAI_API_KEY')
    await new Promise((resolve) => setImmediate(resolve))
  } finally {
    process.off('warning', onWarning)
  }
  const told = warnings.filter(
    ({ name, message }) => name === 'CaissonWarning' && message.includes('OPENAI_API_KEY'),
  )
  expect(told).toHaveLength(1)
  expect(told[0]?.message).not.toContain('sk-abc')
})
