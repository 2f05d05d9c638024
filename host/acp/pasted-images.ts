/** Images that a person pastes into a prompt: checked, and given to the run as files that the disk does not have. */
import { createHash } from 'node:crypto'
import { imagesMaxBytes, readImageUrl } from '#specs/protocol/image.ts'
import { invalidParams } from './refusals.ts'

const endings = { 'image/png': 'png', 'image/jpeg': 'jpg', 'image/webp': 'webp', 'image/gif': 'gif' } as const

export class PastedImages {
  readonly #contents: Record<string, { readonly base64: string }> = {}
  #bytes = 0

  /** By path in the workspace. */
  get contents(): Readonly<Record<string, { readonly base64: string }>> {
    return this.#contents
  }

  /** @returns its path. @throws {RequestError} for what no model could get */
  add({ data, mimeType }: { readonly data: string; readonly mimeType: string }): string {
    const read = readImageUrl(`data:${mimeType};base64,${data}`)
    if (!read.ok) throw invalidParams(`the pasted image cannot be used: ${read.error}`)
    const { type, sizeBytes } = read.value
    this.#bytes += sizeBytes
    if (this.#bytes > imagesMaxBytes)
      throw invalidParams(
        `the pasted images have more than ${imagesMaxBytes} bytes together; paste smaller ones`,
      )
    const digest = createHash('sha256').update(data).digest('hex').slice(0, 12)
    const name = `pasted-image-${digest}.${endings[type]}`
    this.#contents[name] = { base64: data }
    return name
  }
}
