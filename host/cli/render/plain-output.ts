/** Output of the guest for a terminal that must not obey it: a stream of foreign text, line ends and backspaces kept. */
import { StringDecoder } from 'node:string_decoder'
import { sanitizeLine } from './sanitize.ts'

/** What a terminal without any abilities needs to let a line be edited. */
const kept = /([\n\r\t\b])/

export class PlainOutput {
  readonly #decoder = new StringDecoder('utf8')

  /** The text of the next bytes; a character that is cut waits for its rest. */
  feed(bytes: Uint8Array): string {
    return show(this.#decoder.write(Buffer.from(bytes)))
  }

  end(): string {
    return show(this.#decoder.end())
  }
}

function show(text: string): string {
  return text
    .split(kept)
    .map((part, index) => (index % 2 === 1 ? part : sanitizeLine(part, Number.POSITIVE_INFINITY)))
    .join('')
}
