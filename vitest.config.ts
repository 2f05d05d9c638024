// Projects: `fast` needs no VM, `vm` boots the real VM, `slow` takes long, `more` is the slow tier of files that do more
// in it than in `fast`. What `scripts/test` has of them is said in `scripts/test.ts`.
import { globSync, readFileSync } from 'node:fs'
import { defineConfig } from 'vitest/config'
import {
  BaseSequencer,
  ForksPoolWorker,
  type PoolOptions,
  type TestSpecification,
  type WorkerRequest,
} from 'vitest/node'

const conditions = ['caisson-source', 'node']
const execArgv = ['--conditions=caisson-source']
/** Files at once that boot VMs: an emulated guest keeps about one processor busy, and waits in between. */
const VMS_AT_ONCE = 2
/** Of the slow tier: half of them wait for a browser, a server or a clock. */
const SLOW_AT_ONCE = 3
/** Of the fast tier, on two processors: many of its tests wait more than they work. */
const FILES_AT_ONCE = 3

/** More would make each start of a program slower: the system copies the page tables of a process that has grown. */
const FILES_PER_PROCESS = 24

class SharedProcess extends ForksPoolWorker {
  override readonly name = 'shared-process'
  #files = 0

  override send(message: WorkerRequest): void {
    if (message.type === 'run') this.#files += 1
    super.send(message)
  }

  canReuse(): boolean {
    return this.#files < FILES_PER_PROCESS
  }
}

/** Those that take minutes, the longest first: one that begins as the last keeps the others waiting. */
const longest = [
  ...['test/vm/faults.slow', 'scripts/bench/bench.slow', 'test/recovery/recovery', 'scripts/soak/soak.slow'],
  ...['test/vscode/vscode.slow', 'test/vm/reseed.slow', 'scripts/mutation/mutation.slow'],
  ...['host/test/image/build.slow', 'host/test/runs/recovery.slow', 'test/repository/package.slow'],
  ...['test/mcp-sign-in/conformance.slow', 'test/repository/coding-agent-example.slow'],
  ...['host/test/runs/hostile-model.slow', 'host/test/cli/killed.slow', 'test/vm/change-set.slow'],
  ...[
    'test/repository/sandbox-tools-example.slow',
    'test/link/http-soak',
    'host/test/vm/template-faults.slow',
  ],
  ...['host/test/cli/stopped.slow', 'test/recovery/sleeping'],
  // In VMs.
  ...['host/test/egress/programs.vm', 'test/vm/views.vm', 'host/test/cli/developer-access.vm'],
  ...['host/test/vm/checkpoints/checkpoints.vm', 'host/test/forks/fork.vm', 'host/test/vm/open-vm.vm'],
].map((name) => `${import.meta.dirname}/${name}.test.ts`)

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number =>
      longest.includes(moduleId) ? longest.indexOf(moduleId) : longest.length
    const sorted = await super.sort(files)
    return sorted.toSorted((a, b) => rank(a) - rank(b))
  }
}

/** A process for each file takes a third of the processor time; `test/environment.ts` has what files share. */
const sharedProcesses = {
  isolate: false,
  pool: { name: 'shared-process', createPoolWorker: (options: PoolOptions) => new SharedProcess(options) },
  maxWorkers: FILES_AT_ONCE,
}

const slowTier = { CAISSON_TEST_TIER: process.env.CAISSON_TEST_TIER ?? 'slow' }

/** Fast files that do more in the slow tier. */
const perTierFiles = globSync('{specs,runtime,agent,host,client,goals,page,vscode,test}/**/*.test.ts', {
  cwd: import.meta.dirname,
}).filter((file) =>
  readFileSync(`${import.meta.dirname}/${file}`, 'utf8').includes("'#specs/testing/tier.ts'"),
)

export default defineConfig({
  ssr: { resolve: { conditions, externalConditions: conditions } },
  resolve: { conditions },
  test: {
    pool: 'forks',
    execArgv,
    setupFiles: [`${import.meta.dirname}/test/environment.ts`],
    sequence: { sequencer: LongestFirst },
    // What comes about soon on a quiet machine; the default of a second is an absolute time on a loaded one.
    expect: { poll: { timeout: 10_000 } },
    // A failure names both values: a report has no diff.
    chaiConfig: { truncateThreshold: 2_000 },
    projects: [
      {
        extends: true,
        test: {
          name: 'fast',
          include: ['{specs,runtime,agent,host,client,goals,page,vscode,vm-image,scripts,test}/**/*.test.ts'],
          exclude: [
            ...['**/*.vm.test.ts', '**/*.slow.test.ts', '**/node_modules/**'],
            // Where the slow tier follows, it has all rounds of these.
            ...(process.env.CAISSON_TEST_ONCE === undefined ? [] : perTierFiles),
          ],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          ...sharedProcesses,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'vm',
          include: [
            '{specs,runtime,agent,host,client,goals,page,vscode,vm-image,scripts,test}/**/*.vm.test.ts',
          ],
          testTimeout: 240_000,
          hookTimeout: 300_000,
          expect: { poll: { timeout: 30_000 } },
          maxWorkers: VMS_AT_ONCE,
          // Projects of other widths are run one after the other.
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'slow',
          include: [
            '{specs,runtime,agent,host,client,goals,page,vscode,vm-image,scripts,test}/**/*.slow.test.ts',
          ],
          env: slowTier,
          testTimeout: 600_000,
          hookTimeout: 600_000,
          expect: { poll: { timeout: 30_000 } },
          maxWorkers: SLOW_AT_ONCE,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: {
          name: 'more',
          include: perTierFiles,
          exclude: ['**/*.slow.test.ts', '**/node_modules/**'],
          env: slowTier,
          testTimeout: 600_000,
          hookTimeout: 600_000,
          expect: { poll: { timeout: 30_000 } },
          ...sharedProcesses,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
})
