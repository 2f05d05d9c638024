// Import directions: host -> specs, agent -> runtime -> specs, never between host and agent, no cycles.
// A package's tests import what the package may import; tests that join packages are in test/.
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
    ['database', 'keys', 'locks'],
    ['image', 'net', 'state', 'workflows', 'workspace'],
    ['api-keys', 'jwt', 'queue', 'secrets', 'vm'],
    ['approvals', 'memory'],
    ['egress', 'mcp', 'tools'],
    ['config'],
    ['hooks', 'notify', 'providers', 'sign-in', 'skills'],
    ['doctor', 'offline-model', 'recording'],
    ['journal', 'web'],
    ['clean', 'fleet', 'gateway', 'traces'],
    ['control', 'forks'],
    ['runs'],
    ['archive', 'blame', 'compare', 'sandbox'],
    ['fleet-runs'],
    [root],
    ['run-view'],
    ['a2a', 'ag-ui'],
    ['acp', 'mcp-server', 'service'],
    ['cli'],
  ],
  agent: [
    ['link', 'text'],
    ['proxy', 'tool-calls'],
    ['extensions', 'run', 'workspace'],
    ['context', 'skills'],
    ['tools'],
    ['mcp', 'search', 'step'],
    ['workflow'],
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
    ['complete'],
    [root],
  ],
  page: [['session', 'styles'], ['parts'], ['changes'], ['questions'], ['run', 'runs'], [root]],
  vscode: [['session'], ['changes'], ['runs'], ['questions'], [root]],
  test: [
    ['support'],
    ['link'],
    ['control', 'egress'],
    [
      'daemon',
      'mcp-sign-in',
      'offline-model',
      'recorded-runs',
      'recovery',
      'repository',
      'sandbox',
      'service',
      'vm',
    ],
    ['acp', 'fleet', 'page', 'vscode'],
  ],
}

const folderPattern = (part: string, folder: string): string =>
  folder === root ? `^${part}/[^/]+\\.tsx?$` : `^${part}/${folder}/`

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

/** Tests, and the support that only tests import. */
const testing = ['^[a-z-]+/test/', '^test/', '^specs/testing/', '^runtime/testing/']

/** What client and page, which run in browsers, do not import. */
const notForBrowsers = [
  '^goals/',
  '^host/',
  '^agent/',
  '^runtime/',
  '^scripts/',
  '^vm-image/',
  '^specs/node/',
  '^specs/test/',
]

export default {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'host-imports-specs-alone',
      severity: 'error',
      from: { path: '^host/' },
      to: { path: ['^goals/', '^agent/', '^runtime/', '^scripts/', '^vm-image/', '^specs/test/'] },
    },
    {
      name: 'agent-imports-runtime-and-specs',
      severity: 'error',
      from: { path: '^agent/' },
      to: { path: ['^goals/', '^host/', '^scripts/', '^vm-image/', '^runtime/test/', '^specs/test/'] },
    },
    {
      name: 'runtime-imports-specs-alone',
      severity: 'error',
      from: { path: '^runtime/' },
      to: { path: ['^goals/', '^host/', '^agent/', '^scripts/', '^vm-image/', '^specs/test/'] },
    },
    {
      name: 'specs-imports-nobody',
      severity: 'error',
      from: { path: '^specs/' },
      to: {
        path: ['^goals/', '^host/', '^agent/', '^runtime/', '^client/', '^page/', '^scripts/', '^vm-image/'],
      },
    },
    {
      name: 'goals-import-two-libraries',
      severity: 'error',
      from: { path: '^goals/' },
      to: {
        path: [
          '^agent/',
          '^client/',
          '^page/',
          '^scripts/',
          '^vm-image/',
          '^specs/test/',
          '^host/',
          '^runtime/',
        ],
        pathNot: [
          '^host/index\\.ts$',
          '^host/without-vm\\.ts$',
          '^host/files/check-arguments\\.ts$',
          '^host/test/support/',
          '^runtime/index\\.ts$',
          '^runtime/testing/',
        ],
      },
    },
    {
      name: 'client-imports-the-contract-alone',
      severity: 'error',
      from: { path: '^client/' },
      to: {
        path: notForBrowsers,
      },
    },
    {
      name: 'client-runs-in-a-browser',
      severity: 'error',
      from: { path: '^client/' },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'page-imports-client-and-contract',
      severity: 'error',
      from: { path: '^page/' },
      to: {
        path: notForBrowsers,
      },
    },
    {
      name: 'page-runs-in-a-browser',
      severity: 'error',
      from: { path: '^page/' },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'page-is-imported-by-nobody',
      severity: 'error',
      from: { path: ['^goals/', '^host/', '^agent/', '^runtime/', '^client/', '^vm-image/'] },
      to: { path: '^page/' },
    },
    {
      name: 'vscode-imports-client-and-contract',
      severity: 'error',
      from: { path: '^vscode/' },
      to: {
        path: notForBrowsers,
        // How the command line finds the service of this machine, and how archives are read.
        pathNot: ['^host/cli/local-service\\.ts$', '^host/state/folders\\.ts$', '^host/control/tar\\.ts$'],
      },
    },
    {
      name: 'vscode-shares-what-draws-nothing',
      severity: 'error',
      from: { path: '^vscode/' },
      to: {
        path: '^page/',
        pathNot: [
          '^page/parts/text\\.ts$',
          '^page/questions/question\\.ts$',
          '^page/run/(?:history|live|workflow-words)\\.ts$',
        ],
      },
    },
    {
      name: 'vscode-is-imported-by-nobody',
      severity: 'error',
      from: { path: ['^goals/', '^host/', '^agent/', '^runtime/', '^client/', '^page/', '^vm-image/'] },
      to: { path: '^vscode/' },
    },
    {
      name: 'image-imports-nobody',
      severity: 'error',
      from: { path: '^vm-image/' },
      to: { path: ['^host/', '^agent/', '^runtime/', '^scripts/', '^specs/'] },
    },
    {
      name: 'shared-test-support-imports-specs-alone',
      severity: 'error',
      from: { path: '^test/support/' },
      to: { path: ['^host/', '^agent/', '^runtime/', '^scripts/', '^vm-image/', '^specs/test/'] },
    },
    {
      name: 'packages-import-shared-test-support-alone',
      severity: 'error',
      from: {
        path: [
          '^goals/test/',
          '^host/test/',
          '^agent/test/',
          '^runtime/test/',
          '^specs/test/',
          '^vm-image/test/',
        ],
      },
      to: { path: '^test/', pathNot: '^test/support/' },
    },
    {
      name: 'product-imports-no-tests',
      severity: 'error',
      from: {
        path: ['^goals/', '^host/', '^agent/', '^runtime/', '^page/', '^vscode/', '^specs/'],
        pathNot: testing,
      },
      to: { path: testing },
    },
    {
      name: 'service-imports-the-library-alone',
      severity: 'error',
      from: { path: '^host/service/' },
      to: {
        path: '^host/',
        pathNot: ['^host/service/', '^host/index\\.ts$', '^host/(?:a2a|ag-ui|run-view)/'],
      },
    },
    {
      name: 'acp-imports-the-library-alone',
      severity: 'error',
      from: { path: '^host/acp/' },
      to: { path: '^host/', pathNot: ['^host/acp/', '^host/index\\.ts$'] },
    },
    {
      name: 'mcp-server-imports-the-client-alone',
      severity: 'error',
      from: { path: '^host/mcp-server/' },
      to: { path: '^host/', pathNot: ['^host/mcp-server/', '^host/run-view/'] },
    },
    {
      name: 'run-view-imports-the-client-alone',
      severity: 'error',
      from: { path: '^host/run-view/' },
      to: { path: '^host/', pathNot: ['^host/run-view/'] },
    },
    {
      name: 'agent-protocols-import-the-library-alone',
      severity: 'error',
      from: { path: ['^host/a2a/', '^host/ag-ui/'] },
      to: {
        path: '^host/',
        pathNot: ['^host/(?:a2a|ag-ui)/', '^host/run-view/', '^host/index\\.ts$'],
      },
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
      from: { path: ['^specs/protocol/', '^specs/service/'] },
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
      extensions: ['.ts', '.tsx', '.js', '.mjs', '.json'],
    },
  },
}
