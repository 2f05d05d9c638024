// The modules whose tests are checked by mutation, with the fast tests that cover each.

export interface CheckedModule {
  readonly file: string
  /** Test files of the fast project. */
  readonly tests: readonly string[]
  /** Changes that a test must notice whatever the sample: each replaces the one place of its text. */
  readonly essential?: readonly { readonly from: string; readonly to: string }[]
}

const egress = ['policy', 'policy-properties'].map((name) => `host/test/egress/${name}.test.ts`)

export const checkedModules: readonly CheckedModule[] = [
  {
    file: 'host/approvals/rules.ts',
    tests: ['host/test/approvals/rules.test.ts'],
    essential: [{ from: "(['deny', 'ask', 'allow'] as const)", to: "(['allow', 'ask', 'deny'] as const)" }],
  },
  {
    file: 'host/approvals/queue.ts',
    tests: ['host/test/approvals/queue.test.ts'],
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
  },
  { file: 'host/check-options.ts', tests: ['host/test/check-options.test.ts'] },
  { file: 'specs/node/frames.ts', tests: ['specs/test/node/frames.test.ts'] },
  { file: 'specs/node/path-text.ts', tests: ['specs/test/node/path-text.test.ts'] },
  { file: 'agent/run/budget.ts', tests: ['agent/test/run/budget.test.ts'] },
]
