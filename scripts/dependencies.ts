// Import directions: host -> specs, agent -> runtime -> specs, never between host and agent, no cycles.
// A pattern that names several places is a list: the check fails for each entry that matches no file.

/** The package's own files outside of its folders. */
const root = '(root)'

/**
 * The folders of each package, lowest first. A folder imports only from lower layers, so no two folders depend on each
 * other. The check fails for a folder that is missing here.
 */
export const layers: Readonly<Record<string, readonly (readonly string[])[]>> = {
  host: [
    ['files', 'guest'],
    ['processes'],
    ['keys', 'locks'],
    ['image', 'net', 'state', 'workspace'],
    ['secrets', 'vm'],
    ['approvals', 'memory'],
    ['egress', 'mcp', 'tools'],
    ['config'],
    ['hooks', 'providers', 'skills'],
    ['doctor', 'offline-model', 'recording'],
    ['journal', 'web'],
    ['clean', 'gateway'],
    ['control'],
    ['runs'],
    ['sandbox'],
    [root],
    ['cli'],
  ],
  agent: [
    ['link', 'text'],
    ['proxy', 'tool-calls'],
    ['extensions', 'run', 'workspace'],
    ['context', 'skills'],
    ['tools'],
    ['mcp', 'search', 'step'],
    ['plan', 'subagents'],
    [root],
  ],
  runtime: [
    ['llm', 'processes'],
    ['contract', 'mcp'],
    ['arguments', 'providers', 'skills', 'tools'],
    ['environment', 'testing'],
    ['generate'],
    ['structured', 'turn-loop'],
    [root],
  ],
}

const folderPattern = (part: string, folder: string): string =>
  folder === root ? `^${part}/[^/]+\\.ts$` : `^${part}/${folder}/`

/** One rule for each folder with another one beside or above it. */
function layerRules() {
  return Object.entries(layers).flatMap(([part, order]) =>
    order.flatMap((folders, layer) =>
      folders.flatMap((folder) => {
        const refused = order
          .slice(layer)
          .flat()
          .filter((other) => other !== folder)
        if (refused.length === 0) return []
        return [
          {
            name: `${part}/${folder}-imports-lower-layers`,
            severity: 'error',
            from: { path: folderPattern(part, folder) },
            to: { path: refused.map((other) => folderPattern(part, other)) },
          },
        ]
      }),
    ),
  )
}

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
    ...layerRules(),
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
