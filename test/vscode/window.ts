// A window of VS Code with the extension, driven as a person does: commands, rows, notifications, dialogs.
import path from 'node:path'
import type { Locator, Page } from 'playwright-core'

/** Nothing but the extension speaks, and dialogs are part of the page. */
export const quietSettings = {
  'workbench.startupEditor': 'none',
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'workbench.tips.enabled': false,
  'chat.disableAIFeatures': true,
  'extensions.ignoreRecommendations': true,
  'telemetry.telemetryLevel': 'off',
  'window.dialogStyle': 'custom',
  'security.workspace.trust.enabled': false,
  'editor.minimap.enabled': false,
  // A view that is drawn again meanwhile may take the focus.
  'workbench.quickOpen.closeOnFocusLost': false,
}

export class Window {
  readonly page: Page
  /** Settings and data of VS Code. */
  readonly folder: string
  /** Dialogs of the browser, which no text of a run may open. */
  readonly complaints: string[] = []

  constructor(page: Page, folder: string) {
    this.page = page
    this.folder = folder
    page.on('dialog', (dialog) => this.complaints.push(`a dialog: ${dialog.message()}`))
  }

  /** Shows the views of the extension. */
  async showViews(): Promise<void> {
    await this.page
      .getByRole('tab', { name: /^Caisson/ })
      .first()
      .click()
    await this.page.getByRole('button', { name: /^Runs Section/ }).waitFor()
  }

  /** A row of a tree of the extension, by a part of its text. */
  row(text: string | RegExp): Locator {
    return this.page.locator('.sidebar .monaco-list-row').filter({ hasText: text }).first()
  }

  /** Opens a run by its row. Rows can move at the moment of the click, so it clicks until the view of the run names it. */
  async openRun(prompt: string): Promise<void> {
    const shown = this.page.locator('.sidebar .pane-header').filter({ hasText: prompt })
    for (let tries = 0; ; tries++)
      try {
        await this.row(prompt).click()
        return await shown.waitFor({ timeout: 3_000 })
      } catch (error) {
        if (tries === 4) throw error
      }
  }

  /** Presses a button of a row, which is there while the pointer is. */
  async press(row: string | RegExp, name: string): Promise<void> {
    const button = this.row(row).getByRole('button', { name })
    for (let tries = 0; ; tries++)
      try {
        await this.row(row).hover()
        return await button.click({ timeout: 3_000 })
      } catch (error) {
        // The row was drawn again meanwhile.
        if (tries === 4) throw error
      }
  }

  /** Calls a command by its title. A list that is about to close may take the first keys: it asks until the command is there. */
  async command(title: string): Promise<void> {
    const row = this.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: title }).first()
    for (let tries = 0; ; tries++)
      try {
        await this.page.keyboard.press('F1')
        await this.quickInput.waitFor()
        await this.quickInput.fill(`>${title}`)
        return await row.click({ timeout: 5_000 })
      } catch (error) {
        if (tries === 4) throw error
        await this.page.keyboard.press('Escape')
      }
  }

  /** The text field of lists and questions on top. */
  get quickInput(): Locator {
    return this.page
      .locator('.quick-input-widget input[type="text"], .quick-input-widget input[type="password"]')
      .first()
  }

  /** Types into the field that has the title or the prompt. */
  async type(title: string | RegExp, text: string): Promise<void> {
    await this.page.locator('.quick-input-widget').filter({ hasText: title }).waitFor()
    await this.quickInput.fill(text)
    await this.page.keyboard.press('Enter')
  }

  /** Chooses from the list that is on top. */
  async pick(text: string | RegExp): Promise<void> {
    await this.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: text }).first().click()
  }

  /** A notification, by a part of its text. */
  notice(text: string | RegExp): Locator {
    return this.page.locator('.notifications-toasts .notification-toast').filter({ hasText: text }).first()
  }

  /** Closes a notification as a person does who decides nothing. */
  async closeNotice(text: string | RegExp): Promise<void> {
    const notice = this.notice(text)
    await notice.hover()
    await notice.getByRole('button', { name: /^Clear Notification/ }).click()
    await notice.waitFor({ state: 'detached' })
  }

  async openFile(name: string): Promise<void> {
    await this.page.keyboard.press('Control+p')
    await this.quickInput.fill(name)
    await this.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: name }).first().click()
    await this.page.locator('.tab.active').filter({ hasText: name }).waitFor()
  }

  /** Selects a line of the open file. The editor may take keys a moment after it is shown. */
  async selectLine(number: number): Promise<void> {
    const selected = this.page.locator('.statusbar-item').filter({ hasText: 'selected)' })
    for (let tries = 0; ; tries++)
      try {
        await this.page.locator('.editor-instance .view-lines').first().click()
        await this.page.keyboard.press('Control+Home')
        for (let line = 1; line < number; line++) await this.page.keyboard.press('ArrowDown')
        await this.page.keyboard.press('Shift+End')
        return await selected.waitFor({ timeout: 3_000 })
      } catch (error) {
        if (tries === 4) throw error
      }
  }

  /** A dialog that has to be answered. */
  get dialog(): Locator {
    return this.page.locator('.monaco-dialog-box')
  }

  /** Text of the editors that are open, with plain spaces. */
  async editorText(): Promise<string> {
    const texts = await this.page.locator('.editor-instance .view-lines').allInnerTexts()
    return texts.join('\n').replaceAll('\u00a0', ' ')
  }

  async screenshot(folder: string, name: string): Promise<void> {
    await this.page.screenshot({ path: path.join(folder, `${name}.png`) })
  }
}
