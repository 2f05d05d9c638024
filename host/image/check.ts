// What `caisson doctor` says about the image: there, not built yet, or damaged. It builds nothing.

import type { ImageCheck } from '../doctor/doctor.ts'
import { findImage } from './image.ts'
import { ImageError } from './image-error.ts'

const MB = 1_000_000

/** @param cacheDir `Folders.cache` */
export async function checkImage(cacheDir: string): Promise<ImageCheck> {
  try {
    const image = await findImage({ cacheDir })
    if (image === undefined) {
      return {
        status: 'warn',
        seen: 'not built yet',
        remedy: 'caisson image build (the first run does it too: about a minute, 60 MB to download)',
      }
    }
    const { files, versions } = image.manifest
    const bytes = Object.values(files).reduce((sum, file) => sum + file.bytes, 0)
    const seen = `${image.key.slice(0, 12)}: ${(bytes / MB).toFixed(0)} MB, Debian ${versions.debian}, Node ${versions.node}`
    return { status: 'ok', seen, kernel: image.kernel }
  } catch (error) {
    if (error instanceof ImageError) return { status: 'fail', seen: error.message, remedy: error.remedy }
    throw error
  }
}
