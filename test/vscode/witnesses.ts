// What tests of the extension look at to see whom it calls and what it stores.
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

/** Writes its arguments into a file beside it. */
export async function programThatSays(name: string): Promise<string> {
  const program = path.join(await temporaryFolder('vscode-program'), 'program')
  await writeFile(program, `#!/bin/sh\necho "$*" > "${program}.said"\necho "${name}"\nsleep 5\n`, {
    mode: 0o700,
  })
  return program
}

/** A server that notes who asks it. */
export async function serverThatNotes() {
  const requests: unknown[] = []
  const server = createServer(({ url, headers }, response) => {
    requests.push({ url, headers })
    response.end('{}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return { requests, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

/** Files below a folder that have a text. */
export async function filesWith(folder: string, text: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
  const contents = await Promise.all(
    files.map(async (file) => ({ file, content: await readFile(file, 'utf8') })),
  )
  expect(contents.length).toBeGreaterThan(3)
  return contents.filter(({ content }) => content.includes(text)).map(({ file }) => file)
}
