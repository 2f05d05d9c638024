/**
 * A prompt as a task: its text, the files that it names, and what the editor has of them. Refuses what is too large, and
 * content that no task can have. What likely holds a secret is named and never sent.
 */
import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import path from 'node:path'
import type { ContentBlock } from '@agentclientprotocol/sdk'
import { fileContentsMaxCount } from '#specs/protocol/file-contents.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type FileContent, isLikelySecret, type PathFate } from '../index.ts'
import { PastedImages } from './pasted-images.ts'
import { invalidParams } from './refusals.ts'
import { isSameText, pathInWorkspace, readSaved, withLineEndsOf, withoutLinks } from './workspace-files.ts'

/** Of all contents together: task and context reach the VM in one message. */
const contentsMaxChars = 512 * 1024
/** Files that the editor is asked for. */
const askedMax = 32
/** Paths of one question about what becomes of them. */
const inspectedMax = 256
const imagesMax = 8
const imageName = /\.(?:png|jpe?g|gif|webp)$/i

export interface Task {
  readonly prompt: string
  /** Paths in the workspace. */
  readonly images: readonly string[]
  /** What the editor sends beside the files, by title. */
  readonly context: Readonly<Record<string, string>>
  /** What the VM gets in the place of what the disk has, by path. */
  readonly contents: Readonly<Record<string, FileContent>>
  /** Files of the workspace that were named. */
  readonly mentioned: readonly string[]
  /** What the person has to know: of what was not sent. */
  readonly notes: readonly string[]
}

export interface PromptPlace {
  readonly workspace: string
  /** Content of a file as the editor has it, saved or not. Absent: the editor offers none. */
  readonly readFile?: ((file: string) => Promise<string | undefined>) | undefined
  /** What becomes of paths when the workspace is copied with these contents. */
  readonly inspect: (
    paths: readonly string[],
    contents: Readonly<Record<string, string>>,
  ) => Promise<Readonly<Record<string, PathFate>>>
  /** Files of the session so far, whose unsaved text counts too. */
  readonly known?: readonly string[]
  /** Why the model gets no images; undefined: it does. */
  readonly refuseImages?: () => Promise<string | undefined>
}

/** @throws {RequestError} for what cannot be a task */
export async function readPrompt(blocks: readonly ContentBlock[], place: PromptPlace): Promise<Task> {
  const reader = new PromptReader(place)
  for (const block of blocks) await reader.add(block)
  return await reader.task()
}

class PromptReader {
  readonly #place: PromptPlace
  #text = ''
  #contentsChars = 0
  readonly #images = new Set<string>()
  readonly #pasted = new PastedImages()
  /** Files of the workspace, with the text that came along. */
  readonly #mentioned = new Map<string, string | undefined>()
  readonly #context: Record<string, string> = {}
  readonly #contents: Record<string, FileContent> = {}
  readonly #notes: string[] = []

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
        await this.#addImageBlock(block)
        break
      default:
        throw invalidParams(
          `a prompt cannot have content of the type ${String((block as ContentBlock).type).slice(0, 100)}; give text, files or images`,
        )
    }
    if (this.#text.length > limits.documentMaxChars)
      throw invalidParams(`the prompt has more than ${limits.documentMaxChars} characters`)
  }

  async task(): Promise<Task> {
    if (this.#text.trim() === '') throw invalidParams('the prompt is empty')
    await this.#takeTexts()
    return {
      ...{ prompt: this.#text, images: [...this.#images], context: this.#context, notes: this.#notes },
      contents: { ...this.#contents, ...this.#pasted.contents },
      mentioned: [...this.#mentioned.keys()],
    }
  }

  async #addLink(uri: string): Promise<void> {
    const found = await this.#name(uri)
    if (found === undefined) return
    if (imageName.test(found)) return this.#addImage(found)
    if (!this.#mentioned.has(found)) this.#mentioned.set(found, undefined)
  }

  async #addResource(resource: Extract<ContentBlock, { type: 'resource' }>['resource']): Promise<void> {
    const found = await this.#name(resource.uri)
    if (!('text' in resource)) {
      if (found === undefined) throw invalidParams('content that is no text must be a file of the workspace')
      if (imageName.test(found)) this.#addImage(found)
      return
    }
    if (resource.text.length > limits.documentMaxChars) throw tooMuchText()
    if (found !== undefined) this.#mentioned.set(found, resource.text)
    else if (isLikelySecret(placeOf(resource.uri), resource.text)) this.#withhold(resource.uri, 'secret')
    else this.#addSection(`Content of ${resource.uri}`, resource.text)
  }

  async #addImageBlock(block: Extract<ContentBlock, { type: 'image' }>): Promise<void> {
    const found = pathInWorkspace(this.#place.workspace, block.uri ?? '')
    const file = found === undefined ? undefined : await withoutLinks(this.#place.workspace, found)
    if (file !== undefined && (await readSaved(path.join(this.#place.workspace, file))) !== undefined)
      return this.#addImage(file)
    const refused = await this.#place.refuseImages?.()
    if (refused !== undefined) throw invalidParams(refused)
    this.#addImage(this.#pasted.add(block))
  }

  #addImage(file: string): void {
    if (this.#images.size >= imagesMax) throw invalidParams(`a prompt may have at most ${imagesMax} images`)
    this.#images.add(file)
  }

  /** Writes the name into the text, as the model knows the file. @returns its path without links */
  async #name(uri: string): Promise<string | undefined> {
    const { workspace } = this.#place
    const named = pathInWorkspace(workspace, uri)
    const found = named === undefined ? undefined : await withoutLinks(workspace, named)
    const lines = /#L[\d:,L-]+$/.exec(uri)?.[0] ?? ''
    this.#text +=
      found === undefined
        ? `\`${uri.slice(0, 1_000)}\` (not a file of the workspace)`
        : `\`${named}${lines}\``
    return found
  }

  /** Takes the texts of files that the run's own tools could read, where they are not saved. */
  async #takeTexts(): Promise<void> {
    const { readFile, known = [], inspect } = this.#place
    const others = known.filter((file) => !this.#mentioned.has(file))
    const files = [...this.#mentioned.keys(), ...(readFile === undefined ? [] : others)]
    if (files.length === 0) return
    const embedded = await this.#embedded()
    const fates = new Map<string, PathFate>()
    for (let from = 0; from < files.length; from += inspectedMax)
      for (const [file, fate] of Object.entries(
        await inspect(files.slice(from, from + inspectedMax), embedded),
      ))
        fates.set(file, fate)
    let asked = 0
    for (const file of files) {
      const fate = fates.get(file) ?? 'missing'
      if (isWithheld(fate)) {
        if (this.#mentioned.has(file)) this.#withhold(file, fate)
        continue
      }
      let text = this.#mentioned.get(file)
      if (text === undefined && readFile !== undefined && asked < askedMax) {
        asked += 1
        text = await readFile(path.join(this.#place.workspace, file))
      }
      if (text !== undefined) await this.#takeText(file, text, fate)
    }
  }

  async #takeText(file: string, text: string, fate: PathFate): Promise<void> {
    const place = path.join(this.#place.workspace, file)
    const saved = await readSaved(place)
    const isUnsaved = saved === undefined ? !existsSync(place) : !includesText(saved, text)
    if (isLikelySecret(file, text)) return this.#withhold(file, 'secret')
    const isEmbedded = this.#mentioned.get(file) !== undefined
    if (!isUnsaved || fate !== 'copied') {
      if (isEmbedded) this.#addSection(`Content of ${file}`, text)
      return
    }
    if (Object.keys(this.#contents).length >= fileContentsMaxCount - imagesMax)
      return void this.#notes.push(`Too many files are not saved; the agent has \`${file}\` as it was saved.`)
    this.#count(text)
    this.#contents[file] = saved === undefined ? text : withLineEndsOf(text, saved)
  }

  #withhold(file: string, reason: 'secret' | 'rules_changed'): void {
    const why =
      reason === 'secret'
        ? 'likely holds secrets, so its content was not sent and the VM does not have it'
        : 'is kept out of the VM by an ignore rule that a run changed, so its content was not sent'
    const shown = file.slice(0, 500)
    this.#notes.push(`\`${shown}\` ${why}. To give it to an agent anyway: \`caisson run --include\`.`)
  }

  #addSection(title: string, content: string): void {
    this.#count(content)
    this.#context[title.slice(0, limits.lineMaxChars)] = content
  }

  #count(content: string): void {
    this.#contentsChars += content.length
    if (content.length > limits.documentMaxChars || this.#contentsChars > contentsMaxChars)
      throw tooMuchText()
  }

  /** Texts that came along, of files whose directory is there. */
  async #embedded(): Promise<Record<string, string>> {
    const found: Record<string, string> = {}
    for (const [file, text] of [...this.#mentioned].slice(0, fileContentsMaxCount)) {
      const parent = path.dirname(path.join(this.#place.workspace, file))
      if (text !== undefined && (await isDirectory(parent))) found[file] = text
    }
    return found
  }
}

async function isDirectory(place: string): Promise<boolean> {
  return (await stat(place).catch(() => undefined))?.isDirectory() === true
}

function tooMuchText() {
  return invalidParams(
    `the files of the prompt have too much text: at most ${limits.documentMaxChars} characters each, ` +
      `${contentsMaxChars} together; mention files instead of including them, and save them`,
  )
}

/** A part of a file that is mentioned is no other text of it. */
function includesText(saved: string, text: string): boolean {
  return isSameText(saved, text) || (text !== '' && saved.includes(text))
}

function isWithheld(fate: PathFate): fate is 'secret' | 'rules_changed' {
  return fate === 'secret' || fate === 'rules_changed'
}

/** What of an address may be a path. */
function placeOf(uri: string): string {
  try {
    const { pathname, searchParams } = new URL(uri)
    return searchParams.get('path') ?? decodeURIComponent(pathname)
  } catch {
    return uri
  }
}
