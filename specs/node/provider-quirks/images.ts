/**
 * Fits the images of a chat request to its model: a note replaces each image that the model cannot see, and the oldest
 * images beyond the limits of one request.
 */
import type { CompletionMessage, CompletionPart } from '../../protocol/completion-request.ts'
import { estimateImageTokens, imagesMaxBytes, imagesMaxCount, readImageUrl } from '../../protocol/image.ts'

export interface ImageSum {
  /** Characters of the data URLs. */
  readonly characters: number
  /** Estimated. */
  readonly tokens: number
}

/** Characters of all images in `messages`, and estimated tokens of those that a model may get. */
export function sumImages(messages: readonly CompletionMessage[]): ImageSum {
  let characters = 0
  const tokens: number[] = []
  for (const { content } of messages) {
    if (!Array.isArray(content)) continue
    for (const part of content) {
      if (part.type !== 'image_url') continue
      const image = readImageUrl(part.image_url.url)
      characters += part.image_url.url.length
      tokens.push(image.ok ? estimateImageTokens(image.value) : 0)
    }
  }
  return { characters, tokens: tokens.slice(-imagesMaxCount).reduce((sum, count) => sum + count, 0) }
}

/**
 * The messages with the newest images that fit, at most `maxImages`; with 0 the model does not see. A message without images
 * becomes a string, which every server accepts.
 */
export function fitImages(messages: readonly CompletionMessage[], maxImages: number): CompletionMessage[] {
  const fitted: CompletionMessage[] = []
  const left = { count: Math.min(maxImages, imagesMaxCount), bytes: imagesMaxBytes }
  for (const message of messages.toReversed()) {
    if (message.role !== 'user' || typeof message.content === 'string') {
      fitted.push(message)
      continue
    }
    const parts = message.content.toReversed().map((part) => fitPart(part, maxImages > 0, left))
    fitted.push({ ...message, content: joinTexts(parts.toReversed()) })
  }
  return fitted.toReversed()
}

function fitPart(
  part: CompletionPart,
  seesImages: boolean,
  left: { count: number; bytes: number },
): CompletionPart {
  if (part.type !== 'image_url') return part
  const image = readImageUrl(part.image_url.url)
  if (!image.ok) return note(`Image left out: ${image.error}.`)
  const { type, width, height, sizeBytes } = image.value
  const name = `Image left out (${type}, ${width}x${height}, ${sizeBytes} bytes)`
  if (!seesImages) {
    return note(`${name}: this model cannot see images. Use a program to read data out of it.`)
  }
  // One older image that is too large ends the series: a gap would look as if the newer ones were complete.
  if (left.count < 1 || sizeBytes > left.bytes) {
    left.count = 0
    return note(`${name}: newer images fill the request. Read it again to see it.`)
  }
  left.count -= 1
  left.bytes -= sizeBytes
  return part
}

function joinTexts(parts: CompletionPart[]): CompletionPart[] | string {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? texts.join('\n\n') : parts
}

function note(text: string): CompletionPart {
  return { type: 'text', text: `[${text}]` }
}
