/**
 * One image of a run out of its recording. The file may have come from another machine: what is returned has the digest
 * that was asked for and is a whole image by its bytes.
 */
import { createHash } from 'node:crypto'
import { createReadStream, existsSync } from 'node:fs'
import { type ImageRef, imageMaxBytes, readImageUrl, splitImageUrl } from '#specs/protocol/image.ts'
import { parseJson } from '../files/json.ts'
import { Exchange } from './format.ts'

/** An image that the model looked at. */
export interface RunImage extends ImageRef {
  /** Untrusted, as are all files of a run. */
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** Bytes of a line with an image: base64, and a little around it. */
const lineMaxBytes = 2 * imageMaxBytes

/** Reads the file once, and holds one line with this digest at most. Null: the recording has no such image. */
export async function readRecordedImage(file: string, sha256: string): Promise<RunImage | null> {
  // As the recorder writes it. A line of another form has no image that this version wrote.
  const beginning = Buffer.from(`${JSON.stringify({ kind: 'image', sha256 }).slice(0, -1)},`)
  if (!existsSync(file)) return null
  for await (const line of linesWith(file, beginning)) {
    const image = imageOf(line, sha256)
    if (image !== null) return image
  }
  return null
}

function imageOf(line: Buffer, sha256: string): RunImage | null {
  const exchange = Exchange.safeParse(parseJson(line.toString('utf8')))
  if (!exchange.success || exchange.data.kind !== 'image') return null
  const facts = readImageUrl(exchange.data.url)
  if (!facts.ok) return null
  const bytes = Uint8Array.from(Buffer.from(splitImageUrl(exchange.data.url)?.base64 ?? '', 'base64'))
  const digest = createHash('sha256').update(bytes).digest('hex')
  return digest === sha256 ? { sha256, ...facts.value, bytes } : null
}

/** The whole lines that begin so; one that is longer than an image can be is skipped. */
async function* linesWith(file: string, beginning: Buffer): AsyncGenerator<Buffer, void> {
  let line: Buffer | null = Buffer.alloc(0)
  for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
    for (let from = 0; from < chunk.length; ) {
      const newline = chunk.indexOf(10, from)
      const end = newline < 0 ? chunk.length : newline
      line = line === null ? null : extended(line, chunk.subarray(from, end), beginning)
      from = end + 1
      if (newline < 0) continue
      if (line !== null && line.length > beginning.length) yield line
      line = Buffer.alloc(0)
    }
  }
}

/** Null: the line does not begin so, or is too long. */
function extended(line: Buffer, piece: Buffer, beginning: Buffer): Buffer | null {
  if (line.length + piece.length > lineMaxBytes) return null
  const longer = Buffer.concat([line, piece])
  const head = longer.subarray(0, beginning.length)
  return head.equals(beginning.subarray(0, head.length)) ? longer : null
}
