// Import directions: host -> specs, agent -> runtime -> specs, never between host and agent, no cycles.
// A pattern that names several places is a list: the check fails for each entry that matches no file.
export default {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'host-never-imports-agent',
      severity: 'error',
      from: { path: '^host/(?!test/)' },
      to: { path: '^agent/' },
    },
    {
      name: 'agent-never-imports-host',
      severity: 'error',
      from: { path: '^agent/' },
      to: { path: '^host/' },
    },
    {
      name: 'runtime-imports-specs-alone',
      severity: 'error',
      from: { path: '^runtime/(?!test/)' },
      to: { path: ['^host/', '^agent/', '^scripts/'] },
    },
    {
      name: 'host-never-imports-runtime',
      severity: 'error',
      from: { path: '^host/(?!test/)' },
      to: { path: '^runtime/' },
    },
    {
      name: 'specs-imports-nobody',
      severity: 'error',
      from: { path: '^specs/(?!test/)' },
      to: { path: ['^host/', '^agent/', '^runtime/', '^scripts/'] },
    },
    {
      name: 'contract-has-no-node',
      severity: 'error',
      from: { path: '^specs/', pathNot: ['^specs/node/', '^specs/test/', '^specs/testing/'] },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'contract-imports-zod-alone',
      severity: 'error',
      from: { path: '^specs/protocol/' },
      to: { path: 'node_modules', pathNot: ['node_modules/zod/'] },
    },
    {
      name: 'tools-never-import-the-loop',
      severity: 'error',
      from: { path: '^agent/tools/' },
      to: {
        path: ['^agent/main\\.ts$', '^agent/loop\\.ts$', '^agent/step\\.ts$', '^agent/plan/'],
      },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      conditionNames: ['caisson-source', 'import', 'node', 'default'],
      extensions: ['.ts', '.js', '.mjs', '.json'],
    },
  },
}
