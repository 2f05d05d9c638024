/**
 * A server of packages on this machine, in the clear and over TLS at one port, with what curl, git, pip and npm ask of
 * one; and a user's proxy through which the host reaches it under any name.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer as createNetServer, type Socket } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import { crc32 } from 'node:zlib'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { makeAuthority, type TestAuthority } from './authority.ts'
import { startConnectProxy } from './connect-proxy.ts'
import { whereServer } from './mcp-servers.ts'

const run = promisify(execFile)

export interface PackageServer extends AsyncDisposable {
  readonly authority: TestAuthority
  /** Variables that lead a host to it, whatever a name resolves to. */
  readonly env: Readonly<Record<string, string>>
  /** What was asked of it: `https GET /path`, in order. */
  readonly asked: string[]
  /** What was asked of the proxy: HOST:PORT, in order. */
  readonly connections: string[]
}

/**
 * Serves `/hello`, `/repo.git`, `/simple/caisson-demo/`, `/npm/caisson-demo` and `/npm/caisson-mcp-demo` (an MCP server)
 * under the name `packages.test`.
 */
export async function startPackageServer(): Promise<PackageServer> {
  const authority = await makeAuthority('DNS:packages.test')
  const files = await makeFiles()
  const asked: string[] = []
  const serve = (scheme: string) => (request: IncomingMessage, response: ServerResponse) => {
    asked.push(`${scheme} ${request.method} ${request.url}`)
    void answer(files, request, response)
  }
  const plain = createServer(serve('http'))
  const tls = createTlsServer({ cert: authority.cert, key: authority.key }, serve('https'))
  const sockets = new Set<Socket>()
  const server = createNetServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.once('readable', () => {
      const first = socket.read() as Buffer | null
      if (first === null) return socket.destroy()
      socket.unshift(first)
      ;(first[0] === 0x16 ? tls : plain).emit('connection', socket)
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const proxy = await startConnectProxy({ leadsTo: { host: '127.0.0.1', port } })
  const url = `http://127.0.0.1:${proxy.port}`
  return {
    authority,
    env: { HTTP_PROXY: url, HTTPS_PROXY: url, http_proxy: url, https_proxy: url, NO_PROXY: '', no_proxy: '' },
    asked,
    connections: proxy.asked,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await proxy[Symbol.asyncDispose]()
    },
  }
}

async function answer(folder: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const wanted = path.join(folder, new URL(request.url ?? '/', 'http://x').pathname)
  const isFolder = (await stat(wanted).catch(() => null))?.isDirectory() === true
  const content = await readFile(isFolder ? path.join(wanted, 'index.html') : wanted).catch(() => null)
  response.writeHead(content === null ? 404 : 200, {
    'content-type': isFolder ? 'text/html' : 'application/octet-stream',
    'content-length': content?.length ?? 0,
  })
  response.end(content ?? undefined)
}

async function makeFiles(): Promise<string> {
  const folder = await temporaryFolder('packages')
  const put = async (name: string, content: string | Uint8Array): Promise<void> => {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true })
    await writeFile(path.join(folder, name), content)
  }
  await put('hello', 'hello from outside')
  await makeRepository(folder, put)

  const wheel = makeWheel()
  await put('wheels/caisson_demo-1.0-py3-none-any.whl', wheel)
  const digest = createHash('sha256').update(wheel).digest('hex')
  await put(
    'simple/caisson-demo/index.html',
    `<a href="/wheels/caisson_demo-1.0-py3-none-any.whl#sha256=${digest}">caisson_demo-1.0-py3-none-any.whl</a>`,
  )

  await addNpmPackage(folder, put, 'caisson-demo', "module.exports = 'npm works'\n")
  await addNpmPackage(folder, put, 'caisson-mcp-demo', whereServer, { bin: { 'mcp-demo': 'index.js' } })
  return folder
}

type Put = (name: string, content: string) => Promise<void>

/** A package of one file, with its archive and its document as npm asks for them. */
async function addNpmPackage(
  folder: string,
  put: Put,
  name: string,
  code: string,
  fields: object = {},
): Promise<void> {
  const manifest = { name, version: '1.0.0', main: 'index.js', ...fields }
  await put(`${name}/package/package.json`, JSON.stringify(manifest))
  await put(`${name}/package/index.js`, code)
  await run('tar', ['-czf', `${name}.tgz`, '-C', name, 'package'], { cwd: folder })
  const integrity = createHash('sha512').update(await readFile(path.join(folder, `${name}.tgz`)))
  const dist = {
    tarball: `https://packages.test/${name}.tgz`,
    integrity: `sha512-${integrity.digest('base64')}`,
  }
  const versions = { '1.0.0': { ...manifest, dist } }
  await put(`npm/${name}`, JSON.stringify({ name, 'dist-tags': { latest: '1.0.0' }, versions }))
}

/** A repository that any web server can serve. */
async function makeRepository(folder: string, put: Put): Promise<void> {
  await put('work/README', 'git works\n')
  const env = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' }
  const git = (cwd: string, ...args: string[]) => run('git', args, { cwd: path.join(folder, cwd), env })
  await git('work', 'init', '-q', '-b', 'main')
  await git('work', 'add', '.')
  const who = ['-c', 'user.name=Test', '-c', 'user.email=test@packages.test']
  await git('work', ...who, 'commit', '-q', '-m', 'first')
  await git('.', 'clone', '-q', '--bare', 'work', 'repo.git')
  await git('repo.git', 'update-server-info')
}

/** A wheel is a zip archive; its files are stored as they are. */
function makeWheel(): Buffer {
  const info = 'caisson_demo-1.0.dist-info'
  return makeZip({
    'caisson_demo.py': "WORD = 'pip works'\n",
    [`${info}/METADATA`]: 'Metadata-Version: 2.1\nName: caisson-demo\nVersion: 1.0\n',
    [`${info}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    [`${info}/RECORD`]: `caisson_demo.py,,\n${info}/METADATA,,\n${info}/WHEEL,,\n${info}/RECORD,,\n`,
  })
}

function makeZip(files: Readonly<Record<string, string>>): Buffer {
  const local: Buffer[] = []
  const central: Buffer[] = []
  let at = 0
  for (const [name, text] of Object.entries(files)) {
    const [title, content] = [Buffer.from(name), Buffer.from(text)]
    const common = Buffer.alloc(26)
    common.writeUInt16LE(20)
    // 1980-01-01, the first day that a zip archive knows.
    common.writeUInt16LE(33, 8)
    common.writeUInt32LE(crc32(content), 10)
    common.writeUInt32LE(content.length, 14)
    common.writeUInt32LE(content.length, 18)
    common.writeUInt16LE(title.length, 22)
    const entry = Buffer.concat([Buffer.from('PK\x03\x04', 'latin1'), common, title, content])
    const rest = Buffer.alloc(14)
    rest.writeUInt32LE(at, 10)
    central.push(Buffer.from('PK\x01\x02\x14\0', 'latin1'), common, rest, title)
    local.push(entry)
    at += entry.length
  }
  const directory = Buffer.concat(central)
  const end = Buffer.alloc(18)
  end.writeUInt16LE(Object.keys(files).length, 4)
  end.writeUInt16LE(Object.keys(files).length, 6)
  end.writeUInt32LE(directory.length, 8)
  end.writeUInt32LE(at, 12)
  return Buffer.concat([...local, directory, Buffer.from('PK\x05\x06', 'latin1'), end])
}
