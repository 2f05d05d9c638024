/**
 * A prompt as a task: its text, the files that it names, and what the editor sends of them. Refuses what is too large, and
 * content that no task can have.
 */
import { readFile, realpath, stat } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { ContentBlock } from '@agentclientprotocol/sdk'
import { limits } from '#specs/protocol/limits.ts'
import { isPlainRelativePath } from '#specs/protocol/text.ts'
import { invalidParams } from './refusals.ts'

/** Of all contents together: task and context reach the VM in one message. */
const contentsMaxChars = 512 * 1024
/** Files that the editor is asked for. */
const askedMax = 32
const imagesMax = 8
const imageName = /\.(?:png|jpe?g|gif|webp)$/i

export interface Task {
  readonly prompt: string
  /** Paths in the workspace. */
  readonly images: readonly string[]
  /** What the editor has, by title. */
  readonly context: Readonly<Record<string, string>>
}

export interface PromptPlace {
  readonly workspace: string
  /** Content of a file as the editor has it, saved or not. Absent: the editor offers none. */
  readonly readFile?: ((file: string) => Promise<string | undefined>) | undefined
}

/** @throws {RequestError} for what cannot be a task */
export async function readPrompt(blocks: readonly ContentBlock[], place: PromptPlace): Promise<Task> {
  const reader = new PromptReader(place)
  for (const block of blocks) await reader.add(block)
  return reader.task()
}

/** Path below the workspace, with `/`; undefined for what is elsewhere. */
export function pathInWorkspace(workspace: string, uri: string): string | undefined {
  let file: string
  try {
    file = fileURLToPath(new URL(uri))
  } catch {
    return undefined
  }
  const relative = path.relative(workspace, file).split(path.sep).join('/')
  return isPlainRelativePath(relative) ? relative : undefined
}

class PromptReader {
  readonly #place: PromptPlace
  #text = ''
  #contentsChars = 0
  #asked = 0
  readonly #images = new Set<string>()
  readonly #context: Record<string, string> = {}

  constructor(place: PromptPlace) {
    this.#place = place
  }

  async add(block: ContentBlock): Promise<void> {
    switch (block.type) {
      case 'text':
        this.#text += block.text
        break
      case 'resource_link':
        await this.#addLink(block.uri)
        break
      case 'resource':
        await this.#addResource(block.resource)
        break
      case 'image':
        this.#addImage(block.uri ?? '')
        break
      default:
        throw invalidParams(`a prompt cannot have content of the type ${block.type}`)
    }
    if (this.#text.length > limits.documentMaxChars)
      throw invalidParams(`the prompt has more than ${limits.documentMaxChars} characters`)
  }

  task(): Task {
    if (this.#text.trim() === '') throw invalidParams('the prompt is empty')
    return { prompt: this.#text, images: [...this.#images], context: this.#context }
  }

  async #addLink(uri: string): Promise<void> {
    const found = await this.#name(uri)
    if (found === undefined) return
    if (imageName.test(found)) return this.#addImage(uri)
    const { readFile: ask } = this.#place
    if (ask === undefined || this.#asked >= askedMax) return
    this.#asked += 1
    const content = await ask(path.join(this.#place.workspace, found))
    if (content !== undefined && (await this.#isUnsaved(found, content)))
      this.#addContent(unsavedTitle(found), content)
  }

  async #addResource(resource: Extract<ContentBlock, { type: 'resource' }>['resource']): Promise<void> {
    const found = await this.#name(resource.uri)
    if (!('text' in resource)) {
      if (found === undefined) throw invalidParams('content that is no text must be a file of the workspace')
      if (imageName.test(found)) this.#addImage(resource.uri)
      return
    }
    const isUnsaved = found !== undefined && (await this.#isUnsaved(found, resource.text))
    this.#addContent(isUnsaved ? unsavedTitle(found) : `Content of ${found ?? resource.uri}`, resource.text)
  }

  #addImage(uri: string): void {
    const found = pathInWorkspace(this.#place.workspace, uri)
    if (found === undefined)
      throw invalidParams('an image must be a file of the workspace; save it there and mention the file')
    if (this.#images.size >= imagesMax) throw invalidParams(`a prompt may have at most ${imagesMax} images`)
    this.#images.add(found)
  }

  /** Writes the name into the text, as the model knows the file. */
  async #name(uri: string): Promise<string | undefined> {
    const named = pathInWorkspace(this.#place.workspace, uri)
    const found = named !== undefined && (await leadsInto(this.#place.workspace, named)) ? named : undefined
    const lines = /#L[\d:,L-]+$/.exec(uri)?.[0] ?? ''
    this.#text +=
      found === undefined
        ? `\`${uri.slice(0, 1_000)}\` (not a file of the workspace)`
        : `\`${found}${lines}\``
    return found
  }

  async #isUnsaved(found: string, content: string): Promise<boolean> {
    const saved = await readSaved(path.join(this.#place.workspace, found))
    return saved !== undefined && !saved.includes(content)
  }

  #addContent(title: string, content: string): void {
    this.#contentsChars += content.length
    if (content.length > limits.documentMaxChars || this.#contentsChars > contentsMaxChars)
      throw invalidParams(
        `the files of the prompt have too much text: at most ${limits.documentMaxChars} characters each, ` +
          `${contentsMaxChars} together; mention files instead of including them, and save them`,
      )
    this.#context[title.slice(0, limits.lineMaxChars)] = content
  }
}

/** Whether links on the way lead nowhere else: the VM has the link, and the editor would read what it points to. */
async function leadsInto(workspace: string, file: string): Promise<boolean> {
  const real = await realpath(path.join(workspace, file)).catch(() => undefined)
  // A file that is only in the editor.
  if (real === undefined) return true
  return isPlainRelativePath(path.relative(await realpath(workspace), real))
}

/** Undefined for what is no file, or too large to be sent. */
async function readSaved(file: string): Promise<string | undefined> {
  const found = await stat(file).catch(() => undefined)
  if (found === undefined || !found.isFile() || found.size > 4 * limits.documentMaxChars) return undefined
  return await readFile(file, 'utf8').catch(() => undefined)
}

/** The model reads it as the name of a section. */
function unsavedTitle(file: string): string {
  return `Unsaved content of ${file} in the editor, newer than the file: write it there before you change the file`
}
