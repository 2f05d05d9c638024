/** The documents say what is so: links, commands, options, tools, exit codes and bounds are compared with the code. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { serverKinds } from '#specs/node/model-protocols/server-kinds.ts'
import { limits } from '#specs/protocol/limits.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { isReservedToolName } from '#specs/protocol/tool-names.ts'
import { createLogger } from '../../agent/link/logger.ts'
import { createHelper } from '../../agent/link/root-helper.ts'
import { createCodeSearch } from '../../agent/search/code-search.ts'
import { createRegistry } from '../../agent/tool-calls/registry.ts'
import { createAddStepsTool } from '../../agent/tools/add-steps.ts'
import { createAskTool } from '../../agent/tools/ask-user.ts'
import { createCodeTools, createRunSandboxed } from '../../agent/tools/code/code.ts'
import { createFileTools } from '../../agent/tools/file-tools.ts'
import { createGovernanceTool } from '../../agent/tools/governance.ts'
import { createLoadSkillTool } from '../../agent/tools/load-skill.ts'
import { createMath } from '../../agent/tools/math.ts'
import { createMemoryTools } from '../../agent/tools/memory.ts'
import { createOutputTool } from '../../agent/tools/read-output.ts'
import { createAccessTool } from '../../agent/tools/request-access.ts'
import { createRevisePlanTool } from '../../agent/tools/revise-plan.ts'
import { createAgentTools } from '../../agent/tools/run-agents.ts'
import { createWebTools } from '../../agent/tools/web.ts'
import { exitCodes } from '../../host/cli/exit-codes.ts'
import { buildProgram } from '../../host/cli/main.ts'
import { proposalsMaxCount } from '../../host/memory/memory-service.ts'
import { noteMaxChars } from '../../host/memory/note-storage.ts'
import * as kept from '../../host/runs/storage-bounds.ts'
import * as vm from '../../host/vm/vm-options.ts'
import { githubAnchor } from '../../scripts/site/pages.ts'

const root = path.join(import.meta.dirname, '../..')
const read = (file: string) => readFileSync(path.join(root, file), 'utf8')

const markdownIn = (folder: string) =>
  readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md'))
    .map((file) => path.join(folder, file))
/** One page per task, for people who use Caisson. */
const pages = markdownIn('docs')
const documents = [
  'README.md',
  'AGENTS.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'CHANGELOG.md',
  'examples/README.md',
  'examples/fleet/README.md',
  ...pages,
  ...markdownIn('specs'),
]

/** A document without its fenced code. */
const proseOf = (file: string) => read(file).replace(/^```[^\n]*\n[\s\S]*?^```/gm, '')

interface Link {
  readonly file: string
  readonly target: string
}

/** Links to places in this repository: `target` is a path from the root, with the anchor behind `#` if there is one. */
function relativeLinksOf(file: string): Link[] {
  return [...proseOf(file).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^[a-z]+:/.test(target))
    .map((target) => {
      const [to = '', anchor] = target.split('#')
      const place = to === '' ? file : path.join(path.dirname(file), to)
      return { file, target: anchor === undefined ? place : `${place}#${anchor}` }
    })
}

/** The anchors of a document's headings, by GitHub's rule. */
function anchorsOf(file: string): Set<string> {
  const seen = new Map<string, number>()
  const headings = [...proseOf(file).matchAll(/^#{1,6} +(.*)$/gm)]
  return new Set(
    headings.map(([, heading = '']) => {
      const anchor = githubAnchor(heading)
      const count = seen.get(anchor) ?? 0
      seen.set(anchor, count + 1)
      return count === 0 ? anchor : `${anchor}-${count}`
    }),
  )
}

/** What stands in backticks and fences: commands and names, not prose. */
function codeOf(file: string): string[] {
  const fences = /```[^\n]*\n([\s\S]*?)```/g
  const text = read(file)
  const blocks = [...text.matchAll(fences)].map(([, block = '']) => block)
  const spans = [...text.replace(fences, '').matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span)
  return [...blocks, ...spans]
}

/** Rows of the first table after `heading`, as cells. */
function tableAfter(file: string, heading: string): string[][] {
  const text = read(file)
  const at = text.indexOf(heading)
  if (at === -1) throw new Error(`${file} has no ${heading}`)
  const table = /(?:^\|.*\n)+/m.exec(text.slice(at))?.[0] ?? ''
  const rows = table.trim().split('\n').slice(2)
  return rows.map((row) =>
    row
      .replace(/^\||\|$/g, '')
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim()),
  )
}

function program(): Promise<Command> {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  return buildProgram({
    io: { stdin, stdout, stderr, env: {}, version: '0' },
    onExit: () => undefined,
    guestCommand: [],
    runCommand: () => Promise.resolve(0),
  })
}

const allCommands = (command: Command): Command[] => [command, ...command.commands.flatMap(allCommands)]
const optionsOf = (command: Command) =>
  command.options.flatMap(({ long }) => (long === undefined || long === null ? [] : [long]))

describe('the documents', () => {
  it('link only to files that exist [S1.15]', () => {
    const links = documents.flatMap(relativeLinksOf)
    expect(links.length).toBeGreaterThan(100)
    expect(links.filter(({ target }) => !existsSync(path.join(root, target.replace(/#.*$/, ''))))).toEqual([])
  })

  it('link only to headings that exist [S1.15]', () => {
    const anchored = documents.flatMap(relativeLinksOf).filter(({ target }) => target.includes('.md#'))
    const broken = anchored.filter(({ target }) => {
      const [file = '', anchor = ''] = target.split('#')
      return !anchorsOf(file).has(anchor)
    })
    expect(anchored.length).toBeGreaterThan(30)
    expect(broken).toEqual([])
  })

  it('are linked from README.md if they are pages of docs/ [S1.15]', () => {
    const reached = new Set(relativeLinksOf('README.md').map(({ target }) => target.replace(/#.*$/, '')))
    expect(pages.length).toBeGreaterThan(10)
    expect(pages.filter((page) => !reached.has(page))).toEqual([])
  })

  it('name source files that are there [S1.15]', () => {
    const named = documents.flatMap((file) =>
      codeOf(file).flatMap((code) =>
        [
          ...code.matchAll(
            /^(?:agent|docs|host|runtime|specs|scripts|test|vm-image|examples)\/[\w./-]*(?:\.\w+|\/)$/g,
          ),
        ].map(([name]) => ({ file, name })),
      ),
    )
    expect(named.length).toBeGreaterThan(20)
    expect(named.filter(({ name }) => !existsSync(path.join(root, name)))).toEqual([])
  })

  it('name commands that the command line has [S1.15]', async () => {
    const top = new Map((await program()).commands.map((command) => [command.name(), command]))
    const unknown = documents.flatMap((file) =>
      codeOf(file)
        .flatMap((code) => [...code.matchAll(/\bcaisson ([a-z]+)(?: ([a-z]+))?/g)])
        .filter(([, name = '', second = '']) => {
          const below = top.get(name)?.commands.map((command) => command.name())
          return below === undefined || (below.length > 0 && second !== '' && !below.includes(second))
        })
        .map(([text]) => `${file}: ${text}`),
    )
    expect(unknown).toEqual([])
  })

  it('name npm scripts that package.json has [S1.15]', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    const named = documents.flatMap((file) =>
      [...read(file).matchAll(/npm run ([a-z][\w:-]*)/g)].map(([, name = '']) => ({ file, name })),
    )
    expect(named.length).toBeGreaterThan(0)
    expect(named.filter(({ name }) => !Object.hasOwn(scripts, name))).toEqual([])
  })

  it('name options that exist [S1.15, H.01]', async () => {
    const all = await program()
    const known = new Set(['--help', '--version', ...allCommands(all).flatMap(optionsOf)])
    const scripts = [
      'scripts/run',
      'scripts/test',
      'scripts/setup.sh',
      'scripts/image.ts',
      'scripts/bench/main.ts',
      'scripts/bench/fleet-size.ts',
      'scripts/soak/soak.ts',
      'scripts/soak-fleet/soak.ts',
      'scripts/eval/command-line.ts',
      'package.json',
    ]
      .map(read)
      .join('\n')
    const isOfAScript = (option: string) =>
      option === '--unix-socket' || // curl's, as the next
      option === '--data-binary' ||
      scripts.includes(option) ||
      scripts.includes(`${option.slice(2)}: {`) ||
      option === '--project'
    const named = documents.flatMap((file) =>
      codeOf(file).flatMap((code) =>
        [...code.matchAll(/(?<![\w-])--[a-z][a-z-]*/g)].map(([option]) => ({ file, option })),
      ),
    )
    expect(named.filter(({ option }) => !known.has(option) && !isOfAScript(option))).toEqual([])
  })

  it('list every command and subcommand in docs/commands.md [S1.15, H.01]', async () => {
    const listed = new Set(
      tableAfter('docs/commands.md', '## Commands').flatMap(([cell = '']) => {
        const words = [...cell.matchAll(/`([^`]+)`/g)].map(([, span = '']) => span)
        const [, group = '', first = ''] = words[0]?.split(' ') ?? []
        return [group, ...[first, ...words.slice(1)].map((word) => `${group} ${word}`)]
      }),
    )
    const all = (await program()).commands.flatMap((command) => [
      command.name(),
      ...command.commands.map((below) => `${command.name()} ${below.name()}`),
    ])
    expect(all.length).toBeGreaterThan(50)
    expect(
      all.filter((name) => !listed.has(name)),
      'missing in the first table of docs/commands.md',
    ).toEqual([])
  })

  it('list every option of a run, and no other, in docs/commands.md [S1.15, H.01]', async () => {
    const run = (await program()).commands.find((command) => command.name() === 'run')
    const listed = tableAfter('docs/commands.md', '## Options of').flatMap(([cell = '']) =>
      [...cell.matchAll(/(?<![\w-])--[a-z][a-z-]*/g)].map(([option]) => option),
    )
    expect(listed.sort(), 'the table of options in docs/commands.md').toEqual(
      optionsOf(run as Command).sort(),
    )
  })

  it('list every kind of provider with its variables in specs/runtime-library.md [S1.15, S2.02]', () => {
    const listed = tableAfter('specs/runtime-library.md', '### Providers').map(
      ([kind = '', , variables = '']) => [
        kind.replaceAll('`', ''),
        [...variables.matchAll(/[A-Z][A-Z_]+/g)].map(([name]) => name).sort(),
      ],
    )
    const expected = Object.entries(serverKinds).map(([kind, { variables }]) => [
      kind,
      Object.values(variables).flat().sort(),
    ])
    const missing = expected.filter((row) => !listed.some((one) => String(one) === String(row)))
    expect(missing, 'missing in the table of specs/runtime-library.md, or with other variables').toEqual([])
    expect(listed).toHaveLength(expected.length)
  })

  it('give the exit codes that the command line has [S1.15, H.01]', () => {
    const line = /^Exit codes: (.*)$/m.exec(read('docs/commands.md'))?.[1] ?? ''
    const told = line.split('·').map((part) => part.trim())
    expect(told.map((part) => Number.parseInt(part, 10))).toEqual(Object.values(exitCodes))
    const words = Object.keys(exitCodes).slice(0, -1)
    expect(words.filter((word, index) => !told[index]?.split(/\W+/).includes(word))).toEqual([])
  })

  it('name no place of a machine they were written on, and no registry [S1.15]', () => {
    const forbidden =
      /\/root\/|\/work\/|\/tmp\/\w|\/home\/(?!work\b)|\/Users\/|registry\.(?!ts)|npmjs|deb\.debian|snapshot\.debian|artifactory|@@[A-Z]/
    const found = documents.flatMap((file) =>
      read(file)
        .split('\n')
        .filter((line) => forbidden.test(line))
        .map((line) => `${file}: ${line}`),
    )
    expect(found).toEqual([])
  })
})

describe('the document on tools', () => {
  const helper = createHelper('/nonexistent')
  const gateway = { post: () => Promise.reject(new Error('not called')) }
  const tools = [
    ...createFileTools(createRunSandboxed(helper)),
    ...createCodeTools(helper),
    createCodeSearch().toolOver({}),
    createAccessTool(),
    createAskTool(),
    createOutputTool(),
    createMath(),
    createRevisePlanTool(),
    createAddStepsTool({ steps: 1, functions: 1 }),
    ...createAgentTools(),
    ...createWebTools(gateway),
    ...createMemoryTools(gateway),
    createGovernanceTool(gateway),
    createLoadSkillTool({ gateway, helper, files: {} }),
  ]
  const registry = createRegistry(tools, { logger: createLogger(() => undefined) })
  const rows = tableAfter('specs/tool-system.md', '## The tools')

  it('has a row for every tool and for no other [S1.15]', () => {
    const listed = rows.map(([name = '']) => name.replaceAll('`', '')).sort()
    expect(listed, 'the table of specs/tool-system.md').toEqual([...registry.names])
  })

  it('is about names that nothing else may take [S2.09]', () => {
    const free = registry.names.filter((name) => !isReservedToolName(name))
    expect(free, 'missing in specs/protocol/tool-names.ts').toEqual([])
  })

  it('is about tools with name, description, schemas and approval flag, as all tools are [S1.05]', () => {
    for (const { name, description, inputSchema, outputSchema, requiresApproval } of tools) {
      expect(name).toMatch(/^[a-z]+(?:_[a-z]+)*$/)
      expect(description, name).not.toBe('')
      expect(inputSchema.safeParse(Symbol('none')).success, name).toBe(false)
      expect(outputSchema.safeParse(Symbol('none')).success, name).toBe(false)
      expect(['boolean', 'function'], name).toContain(typeof requiresApproval)
    }
  })

  it('names every argument of a tool [S1.15, S1.05]', () => {
    const missing = registry.specs.flatMap(({ name, parameters }) => {
      const [, cell = ''] = rows.find(([first]) => first === `\`${name}\``) ?? []
      const names = Object.keys((parameters as { properties?: object }).properties ?? {})
      return names.filter((argument) => !cell.includes(`\`${argument}\``)).map((argument) => [name, argument])
    })
    expect(missing, 'arguments missing in the table of specs/tool-system.md').toEqual([])
  })

  it('says which tools ask [S1.15]', () => {
    const asking = rows.filter((cells) => cells.join(' ').includes('**Asks**')).map(([name]) => name)
    const required = tools.filter(({ requiresApproval }) => requiresApproval).map(({ name }) => `\`${name}\``)
    expect(asking).toEqual(required)
  })
})

describe('the documents on limits', () => {
  const MiB = 1024 ** 2
  const GiB = 1024 ** 3
  const grouped = (value: number) => value.toLocaleString('en-US')
  const run = RunLimits.parse({})

  it('give the defaults that the code has [S1.15]', () => {
    const told = new Map(
      tableAfter('specs/limits.md', '| limit |').map(([name = '', value = '']) => [name, value]),
    )
    const expected = new Map([
      ['wall time', `${run.maxWallMs / 60_000} min`],
      ['tokens, in and out', grouped(run.maxTokens)],
      ['model requests', run.maxRequests ?? 'as many as the tokens allow'],
      ['US dollars, by the prices of the [configuration](configuration.md)', run.maxCostUsd ?? 'not counted'],
      [
        'schema of the final answer',
        `${limits.outputSchemaMaxChars / 1024} KiB, ${limits.outputSchemaMaxDepth} levels`,
      ],
      ['tool calls', grouped(run.maxToolCalls)],
      ['model turns in a step', grouped(run.maxTurnsPerStep)],
      ['steps at once', grouped(run.maxParallelSteps)],
      ['sub-agents of a run', `${run.maxAgents}, ${run.maxParallelAgents} at once, ${run.maxDepth} deep`],
      ['memory of the VM', `${vm.DEFAULT_MEMORY_BYTES / GiB} GiB`],
      ['CPUs of the VM', '2, or 1 where there is but one'],
      ['disk of the VM', `${vm.DEFAULT_DISK_BYTES / GiB} GiB, sparse`],
      [
        'workspace',
        `${limits.changeMaxContentBytes / GiB} GiB, ${grouped(limits.workspaceMaxEntries)} entries`,
      ],
      [
        'change set',
        `${limits.changeMaxContentBytes / GiB} GiB, ${grouped(limits.changeMaxEntries)} entries, ${limits.changeMaxDepth} directories deep`,
      ],
      [
        'journal',
        `${grouped(limits.runMaxEvents)} events, ${limits.runMaxJournalBytes / MiB} MiB; ` +
          `${grouped(limits.runReservedEvents)} and ${limits.runReservedJournalBytes / MiB} MiB of them for the run's end, apply and undo`,
      ],
      [
        'all runs of a user together',
        `${grouped(kept.defaultKeptBounds.maxRuns)} runs, ${kept.defaultKeptBounds.maxBytes / GiB} GiB on disk`,
      ],
      [
        'notes that a run proposes',
        `${proposalsMaxCount}, of ${noteMaxChars.toLocaleString('en-US')} characters`,
      ],
      ["agent's log", `${limits.runMaxLogBytes / MiB} MiB a run`],
    ])
    expect(told).toEqual(expected)
  })

  it('give the bounds of a VM that the code has [S1.15]', () => {
    const rows = tableAfter('specs/vm.md', '## Size and bounds')
    expect(rows).toEqual([
      [
        '`--ram`',
        `${vm.DEFAULT_MEMORY_BYTES / GiB} GiB`,
        `${vm.MIN_MEMORY_BYTES / MiB} MiB to the machine's memory, whole MiB`,
      ],
      ['`--cpus`', '2, or 1 where there is but one', `1 to ${vm.MAX_CPUS}`],
      [
        '`--disk`',
        `${vm.DEFAULT_DISK_BYTES / GiB} GiB, sparse`,
        `${vm.MIN_DISK_BYTES / MiB} MiB to ${vm.MAX_DISK_BYTES / 1024 / GiB} TiB, whole MiB`,
      ],
    ])
  })
})
