/**
 * The workspace as a file system for the skill registry: by descriptors, never outside the workspace, with a limit on
 * names.
 */
import type { Buffer } from 'node:buffer'
import { opendirSync } from 'node:fs'
import { attempt } from '#specs/node/file-error.ts'
import { decodeLatin1Name } from '#specs/node/path-text.ts'
import type { SkillFiles } from '#specs/node/skills/files.ts'
import type { Result } from '#specs/protocol/error.ts'
import { defaultRoot, type FileToolsOptions, readBounded, withPlace } from '../workspace/file-access.ts'

/** Maximum number of names in one scan, over all folders. */
const namesMaxCount = 1_000

interface ContainedFiles extends SkillFiles {
  /** Whether there were more names than the limit. */
  readonly isCut: boolean
}

/** Paths are those of the guest, below the workspace; a rejection has a message. */
export function containedFiles(options: FileToolsOptions): ContainedFiles {
  const known = options.knownAs ?? options.root ?? defaultRoot
  let left = namesMaxCount
  let isCut = false
  return {
    get isCut() {
      return isCut
    },
    list: async (folder) => {
      const names = await withPlace(options, folder, {}, (place) => {
        const opened = place.openDirectory()
        if (!opened.ok) return opened
        using directory = opened.value
        return attempt(`cannot list ${place}`, () => {
          const read = readNames(directory.at('.'), left)
          left -= read.names.length
          isCut ||= read.isCut
          return read.names
        })
      })
      return required(names)
    },
    resolve: async (target) => {
      const found = await withPlace(options, target, {}, (place) => {
        const stat = place.stat()
        if (!stat.ok) return stat
        const kind = stat.value.isDirectory() ? 'folder' : stat.value.isFile() ? 'file' : 'other'
        const path = place.path === '' ? known : `${known}/${place.path}`
        return { ok: true, value: { path, kind } as const }
      })
      if (!found.ok && (found.error.code === 'not_found' || found.error.code === 'not_a_directory'))
        return null
      return required(found)
    },
    read: async (file, maxBytes) => {
      const bytes = required(await readBounded(options, file, maxBytes))
      return bytes.length > maxBytes ? null : bytes.toString('utf8')
    },
  }
}

/** Only folders, links and SKILL.md can lead to a skill. */
function readNames(folder: string | Buffer, max: number): { names: string[]; isCut: boolean } {
  const names: string[] = []
  const directory = opendirSync(folder, { encoding: 'latin1' })
  try {
    for (let looked = 0; ; looked++) {
      const entry = directory.readSync()
      if (entry === null) return { names, isCut: false }
      if (looked >= max) return { names, isCut: true }
      const name = decodeLatin1Name(entry.name)
      if (entry.isDirectory() || entry.isSymbolicLink() || name === 'SKILL.md') names.push(name)
    }
  } finally {
    directory.closeSync()
  }
}

function required<T>(result: Result<T>): T {
  if (result.ok) return result.value
  throw new Error(result.error.message)
}
