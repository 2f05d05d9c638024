// The arrows of the house: host -> specs, agent -> runtime -> specs, never between host and agent, no cycles.
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
      to: { path: '^(host|agent|scripts)/' },
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
      to: { path: '^(host|agent|runtime|scripts)/' },
    },
    {
      name: 'contract-has-no-node',
      severity: 'error',
      from: { path: '^specs/', pathNot: '^specs/(node|test|testing)/' },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'contract-imports-zod-and-types-alone',
      severity: 'error',
      from: { path: '^specs/protocol/' },
      to: { path: 'node_modules', pathNot: 'node_modules/(zod|vscode-jsonrpc)/' },
    },
    {
      name: 'tools-never-import-the-loop',
      severity: 'error',
      from: { path: '^agent/tools/' },
      to: { path: '^agent/(main|loop|planner|executor|step|subagent)\\.ts$' },
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
