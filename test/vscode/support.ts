// Windows of VS Code with the extension, each with a server and settings of its own.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type Browser, chromium } from 'playwright-core'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { CodeServer, installCodeServer, installExtension } from './code-server.ts'
import { quietSettings, Window } from './window.ts'

/** Long enough for a loaded machine; what is awaited comes about much sooner. */
const timeoutMs = 40_000

export interface WindowOptions {
  /** Where the extension finds the service of this machine: `CAISSON_HOME`. */
  readonly home: string
  /** The folder that is open. Absent: none. */
  readonly folder?: string
  readonly settings?: Readonly<Record<string, unknown>>
  readonly machineSettings?: Readonly<Record<string, unknown>>
}

/** One browser and one installed extension for the tests of a file. Call it at the top of the file. */
export function useVsCode() {
  let browser: Browser
  let program: string
  let installed: string | undefined
  let extensions: string
  beforeAll(async () => {
    program = await installCodeServer()
    installed = await mkdtemp(path.join(tmpdir(), 'caisson-vscode-extension-'))
    extensions = await installExtension(program, installed)
    browser = await chromium.launch({
      executablePath: '/usr/bin/chromium',
      // Chromium's own sandbox does not run as root.
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
    })
  }, 300_000)
  afterAll(async () => {
    await browser?.close()
    if (installed !== undefined) await rm(installed, { recursive: true, force: true })
  })
  /** Opens a window. Call it from within a test. */
  return async ({ home, folder, settings = {}, machineSettings = {} }: WindowOptions): Promise<Window> => {
    const own = await temporaryFolder('vscode')
    const server = await CodeServer.start({
      ...{ program, extensions, folder: own, env: { CAISSON_HOME: home } },
      ...{ settings: { ...quietSettings, ...settings }, machineSettings },
    })
    onTestFinished(() => server[Symbol.asyncDispose]())
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 } })
    context.setDefaultTimeout(timeoutMs)
    onTestFinished(() => context.close())
    const page = await context.newPage()
    await page.goto(`${server.url}/${folder === undefined ? '' : `?folder=${encodeURIComponent(folder)}`}`)
    const window = new Window(page, own)
    await window.page.locator('.monaco-workbench').waitFor()
    return window
  }
}
