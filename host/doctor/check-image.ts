// What `caisson doctor` says about the image: there, not built yet, or damaged. It builds nothing.

import path from 'node:path'
import { findImage, findRoot, type ImageOptions } from '../image/image.ts'
import { ImageError } from '../image/image-error.ts'
import type { ImageCheck } from './doctor.ts'

const MB = 1_000_000

/** @param options with `Folders.cache` */
export async function checkImage(options: Pick<ImageOptions, 'cacheDir' | 'sources'>): Promise<ImageCheck> {
  try {
    const root = await findRoot(options)
    if (root === undefined) {
      return {
        status: 'warn',
        seen: 'not built yet',
        remedy:
          'Run caisson image build, or start a run, which builds it too (about a minute, 60 MB download).',
      }
    }
    const { files, versions } = root.manifest
    const bytes = Object.values(files).reduce((sum, file) => sum + file.bytes, 0)
    // Another version of Caisson has an agent of its own, on the same root.
    const isWhole = (await findImage(options)) !== undefined
    const rest = isWhole ? '' : '; the next run adds the agent of this version, which takes seconds'
    const seen = `${root.key.slice(0, 12)}: ${(bytes / MB).toFixed(0)} MB, Debian ${versions.debian}, Node ${versions.node}${rest}`
    return { status: 'ok', seen, kernel: path.join(root.directory, 'vmlinuz') }
  } catch (error) {
    if (error instanceof ImageError) return { status: 'fail', seen: error.message, remedy: error.remedy }
    throw error
  }
}
