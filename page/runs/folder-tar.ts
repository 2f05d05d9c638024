/** A folder that a person chose in the browser, as a tar archive (GNU) for the service. Files are read as they are sent. */

export interface ChosenFile {
  /** With the folder's own name first, as `File.webkitRelativePath`. */
  readonly path: string
  /** ms since 1970 */
  readonly lastModified: number
  readonly content: Blob
}

const blockBytes = 512
const nameMaxBytes = 100
/** Browsers do not tell modes. */
const mode = 0o644

export function folderTar(files: readonly ChosenFile[]): Blob {
  const parts = files.flatMap(({ path, lastModified, content }) => {
    const name = new TextEncoder().encode(path.slice(path.indexOf('/') + 1))
    return [
      ...(name.length < nameMaxBytes ? [] : longName(name)),
      header({ name, flag: '0', size: content.size, lastModified }),
      content,
      padding(content.size),
    ]
  })
  return new Blob([...parts, new Uint8Array(2 * blockBytes)])
}

/** An entry before that of the file has the name that does not fit. */
function longName(name: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>[] {
  const size = name.length + 1
  const entry = { name: new TextEncoder().encode('././@LongLink'), flag: 'L', size, lastModified: 0 }
  return [header(entry), name, new Uint8Array(1), padding(size)]
}

function header(entry: {
  readonly name: Uint8Array
  readonly flag: string
  readonly size: number
  readonly lastModified: number
}): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(blockBytes)
  const write = (text: string, at: number) => block.set(new TextEncoder().encode(text), at)
  const octal = (value: number, at: number, bytes: number) =>
    write(value.toString(8).padStart(bytes - 1, '0'), at)
  block.set(entry.name.subarray(0, nameMaxBytes), 0)
  octal(mode, 100, 8)
  octal(0, 108, 8)
  octal(0, 116, 8)
  octal(entry.size, 124, 12)
  octal(Math.max(0, Math.floor(entry.lastModified / 1_000)), 136, 12)
  write(entry.flag, 156)
  write('ustar  ', 257)
  block.fill(0x20, 148, 156)
  octal(
    block.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  )
  return block
}

function padding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((blockBytes - (size % blockBytes)) % blockBytes)
}
