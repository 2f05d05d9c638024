/**
 * Builds `dist/`, the package's content: the compiled host with its types, the agent's files, the web page, the licenses of
 * what these two bundle, and the man page. Run by `prepack`.
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { bundleAgent } from '../host/image/agent-bundle.ts'
import { bundlePage } from '../host/service/page-files.ts'
import { makeManPage } from './man-page.ts'
import { noticesOf } from './notices.ts'

const root = path.join(import.meta.dirname, '..')
const dist = path.join(root, 'dist')

rmSync(dist, { recursive: true, force: true })
execFileSync(
  process.execPath,
  [path.join(root, 'node_modules/typescript/bin/tsc'), '-p', path.join(root, 'tsconfig.build.json')],
  {
    cwd: root,
    stdio: 'inherit',
  },
)
mkdirSync(path.join(dist, 'agent'))
const agent = await bundleAgent(path.join(root, 'agent/main.ts'))
for (const [name, content] of agent) writeFileSync(path.join(dist, 'agent', name), content)
mkdirSync(path.join(dist, 'page'))
const page = await bundlePage()
for (const [name, content] of page.files) writeFileSync(path.join(dist, 'page', name), content)
const ofAgent = JSON.parse(Buffer.from(agent.get('packages.json') ?? []).toString()) as { name: string }[]
const bundled = [...page.inputs, ...ofAgent.map(({ name }) => path.join(root, 'node_modules', name))]
writeFileSync(
  path.join(dist, 'THIRD-PARTY.txt'),
  noticesOf('The code of the agent and of the web page', bundled),
)
chmodSync(path.join(dist, 'host/cli/bin.js'), 0o755)
const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as { version: string }
mkdirSync(path.join(dist, 'man'))
writeFileSync(path.join(dist, 'man/caisson.1'), await makeManPage(version))
