/** `caisson serve` from this checkout, for the scripts that make pictures. */
import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'

const limitMs = 300_000
const root = path.join(import.meta.dirname, '../..')

export interface Served {
  readonly url: string
  readonly token: string
}

/** `caisson serve` until the callback is over. */
export async function withService(
  env: NodeJS.ProcessEnv,
  workspaces: string,
  use: (served: Served) => Promise<void>,
): Promise<void> {
  const bin = path.join(root, 'host/cli/bin.ts')
  const words = [
    '--conditions=caisson-source',
    '--',
    bin,
    'serve',
    '--port',
    '0',
    '--allow-workspace',
    workspaces,
  ]
  const child = spawn(process.execPath, words, { env, stdio: ['ignore', 'ignore', 'pipe'], timeout: limitMs })
  let said = ''
  const closed = new Promise((resolve) => child.once('close', resolve))
  try {
    const served = await new Promise<Served>((resolve, reject) => {
      child.once('close', () => reject(new Error(`caisson serve ended: ${said}`)))
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        said += text
        const url = /Page: (\S+)\//.exec(said)?.[1]
        const file = /Token: (\S+)/.exec(said)?.[1]
        if (url !== undefined && file !== undefined)
          void readFile(file, 'utf8').then((token) => resolve({ url, token: token.trim() }), reject)
      })
    })
    await use(served)
  } finally {
    child.kill('SIGTERM')
    await closed
  }
}
