/**
 * Prepares a real llama-server: downloads Debian's package once into the cache, writes the scripted model, and prints
 * the start command as one line of JSON. Exit code 3: this machine or its mirror cannot provide it, and stderr says
 * why.
 * usage: node scripts/llama-server/prepare.ts [CACHE]
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { makeModel } from './make-model.ts'

const here = fileURLToPath(new URL('.', import.meta.url))
const cache =
  process.argv[2] ??
  process.env.CAISSON_CACHE ??
  path.join(process.env.XDG_CACHE_HOME || path.join(homedir(), '.cache'), 'caisson')
const folder = path.join(cache, 'llama-server')
const root = path.join(folder, 'root')

function fail(reason: string): never {
  process.stderr.write(`llama-server: ${reason}\n`)
  process.exit(3)
}

if (process.platform !== 'linux' || process.arch !== 'x64') fail('only made ready on Linux on x86-64')
mkdirSync(folder, { recursive: true, mode: 0o700 })
if (!existsSync(path.join(root, 'usr/bin/llama-server'))) {
  try {
    execFileSync(path.join(here, 'fetch.sh'), [folder], { stdio: ['ignore', 2, 2] })
  } catch {
    process.exit(3)
  }
}

const key = createHash('sha256')
for (const name of ['make-model.ts', 'scripts.ts', 'template.jinja'])
  key.update(readFileSync(path.join(here, name)))
const model = path.join(folder, `scripted-${key.digest('hex').slice(0, 16)}.gguf`)
if (!existsSync(model)) {
  const unfinished = `${model}.${process.pid}`
  makeModel(unfinished)
  renameSync(unfinished, model)
}

// sid's libraries are newer than this machine's, so their own loader loads them.
const libraries = path.join(root, 'usr/lib/x86_64-linux-gnu')
process.stdout.write(
  `${JSON.stringify({
    command: path.join(libraries, 'ld-linux-x86-64.so.2'),
    arguments: [
      '--library-path',
      `${libraries}:${path.join(libraries, 'llama')}`,
      path.join(root, 'usr/bin/llama-server'),
      ...['--model', model, '--jinja', '--no-webui', '--temp', '0', '--threads', '2'],
    ],
    // Debian's build looks for its backends in a fixed system folder; this one runs on every x86-64.
    environment: { GGML_BACKEND_PATH: path.join(libraries, 'ggml/backends0/libggml-cpu-x64.so') },
  })}\n`,
)
