// Builds the VM image when its sources changed and prints it as JSON: npm run image. Progress goes to stderr.
// npm run image:disk -- --out FILE writes one bootable qcow2 of the image and the agent instead; it requires Packer and
// the packages named in vm-image/disk.sh.
import { parseArgs } from 'node:util'
import { writeDiskImage } from '../host/image/disk-image.ts'
import { ensureImage, ImageError } from '../host/image/image.ts'
import { prepareFolders, resolveFolders } from '../host/state/folders.ts'

const { values, positionals } = parseArgs({ options: { out: { type: 'string' } }, allowPositionals: true })
const { out } = values
if ((positionals[0] === 'disk') !== (out !== undefined)) {
  process.stderr.write('usage: npm run image, or npm run image:disk -- --out FILE.qcow2\n')
  process.exit(2)
}
const folders = resolveFolders()
await prepareFolders(folders)
const onProgress = (text: string) => process.stderr.write(`${text}\n`)
const stop = new AbortController()
for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => stop.abort())
try {
  const image = await ensureImage({ cacheDir: folders.cache, onProgress, signal: stop.signal })
  if (out === undefined) {
    const { manifest, ...rest } = image
    process.stdout.write(`${JSON.stringify({ ...rest, files: manifest.files }, null, 2)}\n`)
  } else {
    onProgress('image: laying out the disk, booting it once, compressing')
    await writeDiskImage({ image, out })
    process.stdout.write(`${out}\n`)
  }
} catch (error) {
  if (!(error instanceof ImageError)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 4
}
