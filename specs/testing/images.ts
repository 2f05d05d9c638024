/** Small images for tests, with the dimensions that a test wants in their headers. */

export function png(width: number, height: number): Buffer {
  const bytes = Buffer.from('89504e470d0a1a0a0000000d4948445200000000000000000802000000', 'hex')
  bytes.writeUInt32BE(width, 16)
  bytes.writeUInt32BE(height, 20)
  return Buffer.concat([bytes, Buffer.alloc(4), Buffer.from('0000000049454e44ae426082', 'hex')])
}

/** Start, a table, the frame header, a scan and the end. */
export function jpeg(width: number, height: number): Buffer {
  const bytes = Buffer.from(
    'ffd8ffdb000401ffffc0000b080000000001011100ffda0008010100003f0012ff0034ffd9',
    'hex',
  )
  bytes.writeUInt16BE(height, 13)
  bytes.writeUInt16BE(width, 15)
  return bytes
}

export function gif(width: number, height: number): Buffer {
  const bytes = Buffer.from('474946383961000000000000003b', 'hex')
  bytes.writeUInt16LE(width, 6)
  bytes.writeUInt16LE(height, 8)
  return bytes
}

/** In the extended form. */
export function webp(width: number, height: number): Buffer {
  const bytes = Buffer.alloc(32)
  bytes.write('RIFF', 0, 'latin1')
  bytes.writeUInt32LE(bytes.length - 8, 4)
  bytes.write('WEBPVP8X', 8, 'latin1')
  bytes.writeUInt32LE(10, 16)
  bytes.writeUIntLE(width - 1, 24, 3)
  bytes.writeUIntLE(height - 1, 27, 3)
  return bytes
}

export function dataUrl(type: string, bytes: Uint8Array): string {
  return `data:${type};base64,${Buffer.from(bytes).toString('base64')}`
}
