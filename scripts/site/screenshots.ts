/**
 * Makes the pictures of the web page: `node --conditions=caisson-source scripts/site/screenshots.ts [FOLDER]`. A real run in
 * a real VM, with a model that answers from a script (`page-example.ts`). Needs Chromium. Default folder: `docs/`.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type Browser, chromium, type Page } from 'playwright-core'
import { ServiceClient } from '../../client/index.ts'
import { startModelServer } from '../../specs/testing/model-server.ts'
import { files, script, task } from './page-example.ts'
import { type Served, withService } from './served.ts'

const limitMs = 300_000
const folder = path.resolve(process.argv[2] ?? path.join(import.meta.dirname, '../../docs'))

async function take(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: path.join(folder, `${name}.png`) })
}

async function openPage(
  browser: Browser,
  { url, token }: Served,
  options: { readonly width: number; readonly height: number; readonly scheme: 'light' | 'dark' },
): Promise<Page> {
  const { width, height, scheme } = options
  const page = await browser.newPage({
    viewport: { width, height },
    colorScheme: scheme,
    reducedMotion: 'reduce',
  })
  await page.goto(`${url}/#token=${token}`)
  return page
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
  await using model = await startModelServer(script(700))
  const { PATH = '', HOME = '', CAISSON_CACHE } = process.env
  const env = {
    ...{ PATH, HOME, LANG: 'C.UTF-8', CAISSON_HOME: path.join(scratch, 'home'), XDG_CONFIG_HOME: scratch },
    ...(CAISSON_CACHE === undefined ? {} : { CAISSON_CACHE }),
    ...{ CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' },
  }
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  })
  try {
    await withService(env, projects, async (served) => {
      const client = new ServiceClient({ baseUrl: served.url, token: served.token })
      const vm = { memoryBytes: 512 * 1024 ** 2 }
      const { id } = await client.call('createRun', {
        body: { prompt: task, workspace, vm, limits: { maxTokens: 200_000 } },
      })
      const wide = await openPage(browser, served, { width: 1280, height: 860, scheme: 'light' })
      await wide.goto(`${served.url}/#/runs/${id}`)
      await wide.getByRole('heading', { name: 'Allow delete_file' }).waitFor({ timeout: limitMs })
      await wide.getByText('Memory', { exact: true }).waitFor({ timeout: limitMs })
      await take(wide, 'page-question')
      const phone = await openPage(browser, served, { width: 390, height: 780, scheme: 'dark' })
      await phone.getByRole('heading', { name: 'Allow delete_file' }).waitFor()
      await take(phone, 'page-phone')
      await wide.getByRole('button', { name: 'Yes, this once' }).click()
      await wide.getByRole('button', { name: 'Replay' }).waitFor({ timeout: limitMs })
      const dark = await openPage(browser, served, { width: 1280, height: 860, scheme: 'dark' })
      await dark.goto(`${served.url}/#/runs/${id}/changes`)
      await dark.getByText('flagged', { exact: true }).first().waitFor()
      await take(dark, 'page-changes')
    })
  } finally {
    await browser.close()
  }
} finally {
  for (const made of [scratch, projects]) rmSync(made, { recursive: true, force: true })
}
