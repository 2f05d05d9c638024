/** What the package's archive may hold and must hold, and the statements that go with it. */
import { createHash } from 'node:crypto'

/** Folders and files of the archive; everything else is refused. */
const allowed = [
  /^(?:package\.json|README\.md|LICENSE|CHANGELOG\.md)$/,
  /^dist\/(?:client|goals|host|runtime|specs)\/.*\.(?:js|d\.ts)$/,
  /^dist\/agent\//,
  /^dist\/page\/(?:index\.html|app\.js|worker\.js|app\.css|icon\.svg)$/,
  /^dist\/(?:man\/caisson\.1|THIRD-PARTY\.txt)$/,
  /^docs\/[\w-]+\.(?:md|svg|png)$/,
  /^specs\/(?:.*\.md|workflow\.schema\.json)$/,
  /^vm-image\//,
  /^examples\//,
  /^\.env\.example$/,
]
/** Never in an archive, wherever it lies. */
const refused =
  /^(?!\.env\.example$)(?:.*\/)?(?:node_modules|test|\.env[^/]*|\.npmrc|.*\.(?:pem|key|tgz|log))(?:\/|$)/
const required = [
  'package.json',
  'README.md',
  'LICENSE',
  'CHANGELOG.md',
  'dist/host/cli/bin.js',
  'dist/host/index.js',
  'dist/host/index.d.ts',
  'dist/runtime/index.js',
  'dist/runtime/index.d.ts',
  'dist/runtime/testing/index.js',
  'dist/client/index.js',
  'dist/client/index.d.ts',
  'dist/goals/index.js',
  'dist/goals/index.d.ts',
  'dist/agent/agent.cjs',
  'dist/page/index.html',
  'dist/page/app.js',
  'dist/page/worker.js',
  'dist/page/app.css',
  'dist/man/caisson.1',
  'dist/THIRD-PARTY.txt',
  'specs/workflow.schema.json',
  'vm-image/build.sh',
  'examples/operate/caisson.service',
  'examples/operate/grafana-dashboard.json',
]

/** One line for each file that an archive may not hold or lacks. */
export function contentProblems(files: readonly string[]): string[] {
  const wrong = files.filter((file) => refused.test(file) || !allowed.some((pattern) => pattern.test(file)))
  const missing = required.filter((file) => !files.includes(file))
  return [...wrong.map((file) => `unexpected ${file}`), ...missing.map((file) => `missing ${file}`)]
}

export interface ProvenanceInput {
  readonly archive: { readonly name: string; readonly content: Uint8Array }
  readonly source: {
    readonly commit: string
    readonly repository: string | undefined
    readonly clean: boolean
  }
  /** sha256 of the lock file that the build's packages come from. */
  readonly lockDigest: string
  readonly node: string
  readonly npm: string
  readonly startedOn: Date
  readonly finishedOn: Date
}

/**
 * An in-toto statement with SLSA provenance v1. It is not signed: a signature needs the identity of a build service,
 * so this one tells what was built from what, and proves nothing about who built it.
 */
export function provenanceOf({ archive, source, lockDigest, ...build }: ProvenanceInput) {
  const repository = source.repository === undefined ? {} : { uri: source.repository }
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: archive.name, digest: digestsOf(archive.content) }],
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: 'https://slsa.dev/provenance/v1#npm-pack',
        externalParameters: { command: 'npm run release:dry', workingTreeClean: source.clean },
        internalParameters: { node: build.node, npm: build.npm },
        resolvedDependencies: [
          { ...repository, name: 'source', digest: { gitCommit: source.commit } },
          { name: 'package-lock.json', digest: { sha256: lockDigest } },
        ],
      },
      runDetails: {
        builder: { id: 'local-unsigned' },
        metadata: { startedOn: build.startedOn.toISOString(), finishedOn: build.finishedOn.toISOString() },
      },
    },
  }
}

function digestsOf(content: Uint8Array) {
  const hex = (algorithm: string) => createHash(algorithm).update(content).digest('hex')
  return { sha256: hex('sha256'), sha512: hex('sha512') }
}
