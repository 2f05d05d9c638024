// The page of a service of the test in a real browser.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, expect, onTestFinished } from 'vitest'

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** Long enough for a loaded machine; what is awaited comes about much sooner. */
const timeoutMs = 20_000

export interface OpenedPage {
  readonly page: Page
  /** What the browser complained of: errors of scripts, violations of the policy. */
  readonly complaints: string[]
}

/** One browser for the tests of a file. Call it at the top of the file. */
export function useBrowser() {
  let browser: Browser
  beforeAll(async () => {
    browser = await chromium.launch({
      executablePath: '/usr/bin/chromium',
      // Chromium's own sandbox does not run as root.
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
    })
  })
  afterAll(() => browser.close())
  /** Opens an address. Call it from within a test. */
  return async (address: string, options: BrowserContextOptions = {}): Promise<OpenedPage> => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options })
    context.setDefaultTimeout(timeoutMs)
    onTestFinished(() => context.close())
    const page = await context.newPage()
    const complaints: string[] = []
    page.on('pageerror', (error) => complaints.push(error.message))
    page.on('dialog', (dialog) => complaints.push(`a dialog: ${dialog.message()}`))
    page.on('console', (message) => {
      // A refused request and a service that restarts are no faults of the page.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
        complaints.push(message.text())
    })
    await page.goto(address)
    return { page, complaints }
  }
}

/** What axe finds wrong, as `rule: element`. */
export async function axeFindings(page: Page): Promise<string[]> {
  await page.evaluate(axeSource)
  return (await page.evaluate(`axe.run().then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => id + ': ' + html)))`)) as string[]
}

/** Waits until a text is there. */
export async function sees(page: Page, text: string | RegExp): Promise<void> {
  await page.getByText(text).first().waitFor()
}

/** Number of elements that fit a selector. */
export async function countOf(page: Page, selector: string): Promise<number> {
  return await page.locator(selector).count()
}

export async function expectNoComplaints({ complaints }: OpenedPage): Promise<void> {
  expect(complaints).toEqual([])
}
