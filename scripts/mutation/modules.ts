// The modules whose tests are checked by mutation, with the fast tests that cover each.

import { applyMutant, findMutants, type Mutant } from './mutants.ts'

export interface CheckedModule {
  readonly file: string
  /** Test files of the fast project. */
  readonly tests: readonly string[]
  /** Changes that a test must notice whatever the sample: each replaces the one place of its text. */
  readonly essential?: readonly Change[]
  /** Mutants that change no behavior, so that no test can notice them; they are left out. */
  readonly equivalent?: readonly (Change & { readonly reason: string })[]
}

/** `from` occurs once in the module. */
interface Change {
  readonly from: string
  readonly to: string
}

const workspace = (...names: string[]): string[] => names.map((name) => `host/test/workspace/${name}.test.ts`)

const egress = ['policy', 'policy-properties'].map((name) => `host/test/egress/${name}.test.ts`)

export const checkedModules: readonly CheckedModule[] = [
  {
    file: 'host/approvals/rules.ts',
    tests: ['rules', 'command-rules'].map((name) => `host/test/approvals/${name}.test.ts`),
    essential: [{ from: "first('deny') ?? first('ask')", to: "first('ask') ?? first('deny')" }],
  },
  {
    file: 'host/approvals/command-rules.ts',
    tests: ['host/test/approvals/command-rules.test.ts'],
    essential: [
      { from: 'more.includes(undefined)', to: 'false' },
      { from: 'exact === undefined && strict !== undefined', to: 'false' },
      { from: "!pattern.includes('*') || !target.split('/').includes('..')", to: 'true' },
    ],
  },
  {
    file: 'host/approvals/shell-commands.ts',
    tests: ['host/test/approvals/shell-commands.test.ts'],
    essential: [
      { from: 'if (doubtful.has(called)) return', to: 'if (called === undefined) return' },
      {
        from: 'if (!lexed.ok) return unknown(lexed.doubt)',
        to: 'if (!lexed.ok) return { isKnown: true, commands: [] }',
      },
    ],
  },
  {
    file: 'host/approvals/shell-lexer.ts',
    tests: ['host/test/approvals/shell-commands.test.ts'],
    essential: [{ from: "if (raw.endsWith('}')) return", to: "if (raw.endsWith('})')) return" }],
  },
  {
    file: 'host/approvals/queue.ts',
    tests: ['queue', 'plan-question', 'user-question'].map((name) => `host/test/approvals/${name}.test.ts`),
    essential: [
      {
        from: "return { decision: 'deny', hint: 'another approval waits under this id' }",
        to: "return { decision: 'allow' }",
      },
    ],
  },
  {
    file: 'host/egress/policy.ts',
    tests: egress,
    essential: [
      { from: 'if (denying !== undefined) return by(denying, false)', to: '' },
      { from: 'effect: policy.otherwise,', to: "effect: 'allow'," },
      { from: 'if (inside === null || rule !== undefined) return null', to: 'return null' },
    ],
  },
  { file: 'host/egress/rules.ts', tests: egress },
  { file: 'host/egress/url-path.ts', tests: ['host/test/egress/url-path.test.ts', ...egress] },
  {
    file: 'host/secrets/redaction.ts',
    tests: ['host/test/secrets/redaction.test.ts', 'host/test/secrets/redaction-stream.test.ts'],
    equivalent: [
      {
        from: 'if (from > holdAt)',
        to: 'if (from >= holdAt)',
        reason: 'where both are equal, the same end of the text is measured again',
      },
      {
        from: 'length > most;',
        to: 'length >= most;',
        reason: 'of equal lengths either may be the longest',
      },
      ...['Math.ceil((offset * 9) / 6)', 'Math.ceil((offset * 8) / 7)'].map((to) => ({
        from: 'Math.ceil((offset * 8) / 6)',
        to,
        reason: 'rounds up to the same number for the offsets 0, 1 and 2',
      })),
    ],
  },
  { file: 'host/check-options.ts', tests: ['host/test/check-options.test.ts'] },
  { file: 'specs/node/frames.ts', tests: ['specs/test/node/frames.test.ts'] },
  {
    file: 'specs/node/descriptor-walk.ts',
    tests: ['specs/test/node/descriptor-walk.test.ts'],
    equivalent: ['name.length >= 63', 'name.length > 64'].map((to) => ({
      from: 'name.length > 63',
      to,
      reason: 'a text of up to 85 units has no more than 255 bytes',
    })),
  },
  {
    file: 'host/workspace/receive/sense-check.ts',
    tests: workspace('receive/sense-check', 'receive/receive'),
  },
  {
    file: 'host/workspace/flags/flag-rules.ts',
    tests: workspace('flags/flag-table', 'flagged', 'flagged-names'),
  },
  { file: 'host/workspace/review/selection.ts', tests: workspace('apply/apply', 'flagged') },
  {
    file: 'specs/node/path-text.ts',
    tests: ['specs/test/node/path-text.test.ts'],
    equivalent: [
      {
        from: 'bytes[at] ?? 0',
        to: 'bytes[at] ?? 1',
        reason: 'the loop ends before the end of the bytes',
      },
      {
        from: 'character.codePointAt(0) ?? 0',
        to: 'character.codePointAt(0) ?? 1',
        reason: 'each character has a code',
      },
      {
        from: 'at < name.length',
        to: 'at <= name.length',
        reason: 'behind the end is no character, which is not above 0x80 either',
      },
      ...['lead <= 0x80', 'lead < 129'].map((to) => ({
        from: 'lead < 0x80',
        to,
        reason: 'no sequence begins with the byte 0x80, whatever its length',
      })),
    ],
  },
  {
    file: 'agent/run/budget.ts',
    tests: ['agent/test/run/budget.test.ts'],
    equivalent: [
      {
        from: 'Math.max(0, this.#limits.maxWallMs - this.#spentMs)',
        to: 'Math.max(1, this.#limits.maxWallMs - this.#spentMs)',
        reason: 'a timer of 0 ms fires after 1 ms',
      },
      {
        from: '2 ** 31 - 1)',
        to: '2 ** 31 - 2)',
        reason: 'a timer that is 1 ms shorter starts the next one 1 ms earlier',
      },
    ],
  },
]

/** The mutants of a module's text but for the equivalent ones. */
export function findTestedMutants({ equivalent = [] }: CheckedModule, text: string): Mutant[] {
  const same = new Set(equivalent.map(({ from, to }) => text.replace(from, () => to)))
  return findMutants(text).filter((mutant) => !same.has(applyMutant(text, mutant)))
}
