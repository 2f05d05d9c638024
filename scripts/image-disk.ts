// Builds one bootable qcow2 of the image and the agent: npm run image:disk -- --out FILE. Requires Packer and the
// packages named in vm-image/disk.sh.
import { parseArgs } from 'node:util'
import { writeDiskImage } from '../host/image/disk-image.ts'
import { ensureImage, ImageError } from '../host/image/image.ts'
import { prepareFolders, resolveFolders } from '../host/state/folders.ts'

const { values } = parseArgs({ options: { out: { type: 'string' } } })
if (values.out === undefined) {
  process.stderr.write('usage: npm run image:disk -- --out FILE.qcow2\n')
  process.exit(2)
}
const folders = resolveFolders()
await prepareFolders(folders)
const onProgress = (text: string) => process.stderr.write(`${text}\n`)
try {
  const image = await ensureImage({ cacheDir: folders.cache, onProgress })
  onProgress('image: laying out the disk, booting it once, compressing')
  await writeDiskImage({ image, out: values.out })
  process.stdout.write(`${values.out}\n`)
} catch (error) {
  if (!(error instanceof ImageError)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 4
}
