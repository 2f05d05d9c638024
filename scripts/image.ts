// Builds the VM image when its sources changed and prints it as JSON: npm run image. Progress goes to stderr.
import { ensureImage, ImageError } from '../host/image/image.ts'
import { prepareFolders, resolveFolders } from '../host/state/folders.ts'

const folders = resolveFolders()
await prepareFolders(folders)
const stop = new AbortController()
for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => stop.abort())
try {
  const { manifest, ...image } = await ensureImage({
    cacheDir: folders.cache,
    onProgress: (text) => process.stderr.write(`${text}\n`),
    signal: stop.signal,
  })
  process.stdout.write(`${JSON.stringify({ ...image, files: manifest.files }, null, 2)}\n`)
} catch (error) {
  if (!(error instanceof ImageError)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 4
}
