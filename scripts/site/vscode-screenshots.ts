/**
 * Makes the pictures of the extension for VS Code: `node --conditions=caisson-source scripts/site/vscode-screenshots.ts
 * [FOLDER]`. A real run in a real VM, with a model that answers from a script (`page-example.ts`). Needs Chromium, and
 * installs code-server by the lock file of its tests. Default folder: `docs/`.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { chromium, type Page } from 'playwright-core'
import { startModelServer } from '../../specs/testing/model-server.ts'
import { CodeServer, installCodeServer, installExtension } from '../../test/vscode/code-server.ts'
import { quietSettings, Window } from '../../test/vscode/window.ts'
import { files, script, task } from './page-example.ts'
import { withService } from './served.ts'

const limitMs = 300_000
const folder = path.resolve(process.argv[2] ?? path.join(import.meta.dirname, '../../docs'))

async function openWindow(page: Page, url: string, workspace: string): Promise<Window> {
  await page.goto(`${url}/?folder=${encodeURIComponent(workspace)}`)
  const window = new Window(page, folder)
  await window.showViews()
  return window
}

/** Starts the task and takes a picture of its question, then of its changes. */
async function takePictures(window: Window): Promise<void> {
  await window.command('Caisson: Start a Run…')
  await window.type('Start a run', task)
  const notice = window.notice('Allow delete_file')
  await notice.waitFor({ timeout: limitMs })
  await window.page.mouse.move(700, 700)
  await window.screenshot(folder, 'vscode-question')
  await notice.getByRole('button', { name: 'Yes, this once' }).click()
  await window.row('Changes').waitFor({ timeout: limitMs })
  // Rows that do not fit are not in the document.
  for (const section of ['Plan', 'Sub-agents']) await window.row(section).click()
  await window.row(/^orders\.js/).click()
  await window.page.locator('.monaco-diff-editor').waitFor()
  await window
    .row(/^orders\.js/)
    .locator('.monaco-tl-twistie')
    .click()
  await window.row('Hunk 2').click()
  // The server of code-server for TypeScript is not installed, and says so.
  await window.command('Notifications: Clear All Notifications')
  await window.page.mouse.move(700, 700)
  await window.screenshot(folder, 'vscode-changes')
}

const scratch = mkdtempSync(path.join(tmpdir(), 'caisson-pictures-'))
// A path that means something to a reader.
const projects = path.join(tmpdir(), 'projects')
const workspace = path.join(projects, 'orders')
try {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(workspace, name)), { recursive: true })
    writeFileSync(path.join(workspace, name), text)
  }
  const program = await installCodeServer()
  const extensions = await installExtension(program, scratch)
  await using model = await startModelServer(script(700))
  const { PATH = '', HOME = '', CAISSON_CACHE } = process.env
  const home = path.join(scratch, 'home')
  const env = {
    ...{ PATH, HOME, LANG: 'C.UTF-8', CAISSON_HOME: home, XDG_CONFIG_HOME: scratch },
    ...(CAISSON_CACHE === undefined ? {} : { CAISSON_CACHE }),
    ...{ CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' },
  }
  await using server = await CodeServer.start({
    ...{ program, extensions, folder: scratch, env: { CAISSON_HOME: home } },
    ...{
      settings: { ...quietSettings, 'workbench.colorTheme': 'Default Light Modern' },
      machineSettings: {},
    },
  })
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  })
  try {
    await withService(env, projects, async () => {
      const page = await browser.newPage({ viewport: { width: 1280, height: 800 } })
      await takePictures(await openWindow(page, server.url, workspace))
    })
  } finally {
    await browser.close()
  }
} finally {
  for (const made of [scratch, projects]) rmSync(made, { recursive: true, force: true })
}
