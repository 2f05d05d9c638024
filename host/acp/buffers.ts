/**
 * Unsaved text of the editor and the changes of a run: a change is applied only where the editor has the text that the run
 * had, and newer text is never overwritten. The host's apply writes the files, so journal, flags and undo hold.
 */
import path from 'node:path'
import type { ApplySummary, ReviewItem, RunChanges } from '../index.ts'
import type { Editor } from './editor.ts'
import { isSameText, withoutLinks } from './workspace-files.ts'

/** Files that the editor is asked for; others are taken as they are on the disk. */
const askedMax = 64
const knownMax = 128

export interface Settled {
  /** Paths that must not be applied now, with the reason. */
  readonly held: readonly { readonly path: string; readonly reason: string }[]
  /** What the editor had, by path. */
  readonly texts: ReadonlyMap<string, string>
}

export class Buffers {
  readonly #editor: Editor
  readonly #directory: string
  readonly #known = new Set<string>()

  constructor(editor: Editor, directory: string) {
    this.#editor = editor
    this.#directory = directory
  }

  /** Files of the session so far, the last ones. */
  get known(): readonly string[] {
    return [...this.#known]
  }

  know(paths: readonly string[]): void {
    for (const file of paths) {
      this.#known.delete(file)
      this.#known.add(file)
    }
    for (const file of [...this.#known].slice(0, Math.max(0, this.#known.size - knownMax)))
      this.#known.delete(file)
  }

  /** Texts of changed files as the editor has them, by path; those that it does not give are left out. */
  async read(items: readonly ReviewItem[]): Promise<ReadonlyMap<string, string>> {
    const { readFile } = this.#editor
    const texts = new Map<string, string>()
    if (readFile === undefined) return texts
    for (const item of items.filter(isText).slice(0, askedMax)) {
      // A link that came meanwhile leads the editor elsewhere.
      if ((await withoutLinks(this.#directory, item.path)) !== item.path) continue
      const text = await readFile(path.join(this.#directory, item.path))
      if (text !== undefined) texts.set(item.path, text)
    }
    return texts
  }

  /**
   * Makes the editor save the text that the run had, so that its changes fit, and finds what is newer.
   * @param items those that are about to be applied
   */
  async settle(changes: RunChanges, items: readonly ReviewItem[]): Promise<Settled> {
    const texts = await this.read(items)
    const held: { path: string; reason: string }[] = []
    for (const [file, text] of texts) {
      const { base, run, host } = await versionsOf(changes, file)
      if (host === undefined || isSameText(text, host) || (run !== undefined && isSameText(text, run)))
        continue
      if (base === undefined || !isSameText(text, base)) held.push({ path: file, reason: newer })
      // Another program wrote the file since the run began: its text must not be lost, so there is a conflict.
      else if (!(await changes.hasReplaced(file))) continue
      else if (!(await this.#save(file, base))) held.push({ path: file, reason: unsaved })
    }
    return { held, texts }
  }

  /** Gives the editor the applied texts where it still has those of before. */
  async refresh(
    changes: RunChanges,
    { applied }: ApplySummary,
    before: ReadonlyMap<string, string>,
  ): Promise<void> {
    const { readFile } = this.#editor
    for (const file of applied) {
      const earlier = before.get(file)
      if (earlier === undefined || readFile === undefined) continue
      const { run, host } = await versionsOf(changes, file)
      if (run === undefined || host === undefined || !isSameText(run, host)) continue
      const now = await readFile(path.join(this.#directory, file))
      if (now !== undefined && !isSameText(now, run) && isSameText(now, earlier)) await this.#save(file, run)
    }
  }

  async #save(file: string, text: string): Promise<boolean> {
    return (await this.#editor.writeFile?.(path.join(this.#directory, file), text)) === true
  }
}

const newer =
  'your editor has newer text that is not saved, which the run did not have; nothing of it was overwritten. Save it and merge by hand, or undo it and apply again'
const unsaved = 'your editor has not saved the text that the run had; save the file, then apply again'

function isText({ change, binary, before }: ReviewItem): boolean {
  return ['modified', 'deleted'].includes(change) && binary !== true && before?.kind === 'file'
}

async function versionsOf(changes: RunChanges, file: string) {
  const { base, run, host } = await changes.versions(file)
  const text = (version: typeof base) => ('content' in version ? version.content.toString('utf8') : undefined)
  return { base: text(base), run: text(run), host: text(host) }
}

/** What the run had of a file where the editor has the same, not saved. */
export async function unsavedBase(
  changes: RunChanges,
  file: string,
  text: string | undefined,
): Promise<string | undefined> {
  if (text === undefined) return undefined
  const { base, host } = await versionsOf(changes, file)
  return base !== undefined && isSameText(text, base) && base !== host ? base : undefined
}
