/** The TypeScript examples of the documents compile against the public types. */
import { spawnSync } from 'node:child_process'
import { globSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const root = path.join(import.meta.dirname, '../..')

/** What examples use without its declaration, by name. */
const surroundings = {
  host: "declare const host: import('caisson').Host",
  CaissonError: "import { CaissonError } from 'caisson'",
  defineHostTool: "import { defineHostTool } from 'caisson'",
  Host: "import { Host } from 'caisson'",
  createScriptedModel: "import { createScriptedModel } from 'caisson/testing'",
  calls: "import { calls } from 'caisson/testing'",
  text: "import { text } from 'caisson/testing'",
  z: "import { z } from 'zod'",
  environment: "declare const environment: import('caisson/runtime').LLMEnvironment",
  tools: "declare const tools: Record<string, import('caisson/runtime').LLMTool>",
  orders: 'declare const orders: { close(orderId: string, signal: AbortSignal): Promise<string> }',
  createReadStream: "import { createReadStream } from 'node:fs'",
  createWriteStream: "import { createWriteStream } from 'node:fs'",
  Agent: "import { Agent } from 'caisson/agent'",
  token: 'declare const token: string',
  tokens: 'declare const tokens: { current(): Promise<string> }',
  ServiceClient: "import { ServiceClient } from 'caisson/client'",
  answerCustomer: `declare function answerCustomer(question: string, model: unknown): Promise<void>`,
}

/** Each example as a module. */
function examplesOf(file: string): string[] {
  const text = readFileSync(path.join(root, file), 'utf8')
  return [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code = '']) => {
    const missing = Object.entries(surroundings).filter(
      ([name]) =>
        !new RegExp(`(const |using |import .*)\\b${name}\\b`).test(code) &&
        new RegExp(`\\b${name}\\b`).test(code),
    )
    return [...missing.map(([, declaration]) => declaration), code].join('\n')
  })
}

async function compile(modules: ReadonlyMap<string, string>): Promise<string> {
  const folder = await temporaryFolder()
  for (const [file, code] of modules)
    writeFileSync(path.join(folder, `${file.replaceAll('/', '-')}.ts`), `${code}\nexport {}\n`)
  const at = (...names: string[]) => path.join(root, ...names)
  const compilerOptions = {
    noUnusedLocals: false,
    noUnusedParameters: false,
    paths: {
      caisson: [at('host/index.ts')],
      'caisson/runtime': [at('runtime/index.ts')],
      'caisson/testing': [at('runtime/testing/index.ts')],
      'caisson/agent': [at('goals/index.ts')],
      'caisson/client': [at('client/index.ts')],
    },
  }
  symlinkSync(at('node_modules'), path.join(folder, 'node_modules'))
  const config = { extends: at('tsconfig.json'), compilerOptions, include: ['*.ts'] }
  writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify(config))
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}')
  const { stdout, stderr, status } = spawnSync(
    at('node_modules/.bin/tsc'),
    ['--pretty', 'false', '-p', folder],
    {
      encoding: 'utf8',
    },
  )
  return status === 0 ? '' : `${stdout}${stderr}`
}

it('compiles the examples of all documents, and notices one that does not [S1.15]', {
  timeout: 180_000,
}, async () => {
  const files = ['README.md', ...globSync('{docs,specs}/*.md', { cwd: root })]
  const modules = files.flatMap((file) =>
    examplesOf(file).map((code, index) => [`${file}.${index + 1}`, code] as const),
  )
  expect(modules.length).toBeGreaterThan(8)
  const wrong = `${examplesOf('docs/library.md')[0]}\nawait host.run({ prompt: 1 })`
  const said = await compile(new Map([...modules, ['wrong', wrong]]))
  const [error = '', ...others] = said.trim().split(/\n(?! )/)
  expect(others).toEqual([])
  expect(error).toMatch(/\/wrong\.ts\(.*not assignable to type 'string'/)
})
