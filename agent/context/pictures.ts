/**
 * Images in a conversation: which of them one request has room for, and what the model reads in the place of others. The
 * oldest are dropped first.
 */
import { Buffer } from 'node:buffer'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { requestMaxBytes } from '#specs/protocol/completion-request.ts'
import { imagesMaxBytes, imagesMaxCount } from '#specs/protocol/image.ts'
import type { Picture } from '../tool-calls/tool.ts'

/** Bytes of a request for its tools and its form. */
const besideBytes = 512 * 1024
/** JSON escapes line breaks and quotes. */
const escapedShare = 1.1

const leftOut = '[Caisson] Images are left out here to shorten the conversation. Read a file again to see it.'

/** The text in front of the images that calls have read. */
export function describePictures(pictures: readonly Pick<Picture, 'name'>[]): string {
  const names = pictures.map(({ name }) => name).join(', ')
  return `[Caisson] ${pictures.length === 1 ? 'The image that was read' : 'The images that were read, in this order'}: ${names}`
}

/** The message with a note in the place of its images; the message itself when it has none. */
export function withoutPictures(message: ChatMessage): ChatMessage {
  return keepLast(message, 0)
}

/** The messages with the newest images that fit into a request. A message that keeps its images stays the same object. */
export function boundPictures(messages: readonly ChatMessage[]): ChatMessage[] {
  const room = Math.floor(((requestMaxBytes - besideBytes - countTextBytes(messages)) * 3) / 4)
  const left = { count: imagesMaxCount, bytes: Math.min(imagesMaxBytes, room) }
  return messages
    .toReversed()
    .map((message) => {
      const images = (message.role === 'user' ? message.images : undefined) ?? []
      const fitting = images.toReversed().findIndex((url) => !take(url, left))
      return keepLast(message, fitting < 0 ? images.length : fitting)
    })
    .toReversed()
}

/** Whether the image fits; one that does not ends the series, so that no gap looks complete. */
function take(url: string, left: { count: number; bytes: number }): boolean {
  const bytes = Math.ceil((url.length * 3) / 4)
  if (left.count < 1 || bytes > left.bytes) {
    left.count = 0
    return false
  }
  left.count -= 1
  left.bytes -= bytes
  return true
}

function keepLast(message: ChatMessage, count: number): ChatMessage {
  if (message.role !== 'user' || message.images === undefined || message.images.length <= count)
    return message
  const { images, content, ...rest } = message
  const text = content.endsWith(leftOut) ? content : `${content}\n${leftOut}`
  return { ...rest, content: text, ...(count === 0 ? {} : { images: images.slice(-count) }) }
}

function countTextBytes(messages: readonly ChatMessage[]): number {
  let bytes = 0
  for (const message of messages) {
    bytes += Buffer.byteLength(message.content)
    if (message.role === 'assistant')
      for (const { argumentsText } of message.toolCalls) bytes += Buffer.byteLength(argumentsText)
  }
  return bytes * escapedShare
}
