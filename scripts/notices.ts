import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

/**
 * The licenses of the libraries that bundled code has in it, which their terms demand.
 * @param what for the first line, such as `The code of this extension`
 * @param files of `node_modules` that were bundled, or folders of packages; others are left out
 */
export function noticesOf(what: string, files: readonly string[]): string {
  const folders = files.flatMap((file) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? [])
  const notices = [...new Set(folders)].toSorted().map((folder) => {
    const about = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as Package
    const { name, version, license } = about
    const file = readdirSync(folder).find((entry) => /^licen[cs]e(?:\.(?:md|txt))?$/i.test(entry))
    if (file === undefined && license === undefined) throw new Error(`${folder} names no license`)
    const text =
      file === undefined
        ? `License: ${license}, as its package.json says. The package has no license text.`
        : readFileSync(path.join(folder, file), 'utf8').trim()
    return `${name} ${version}\n\n${text}\n`
  })
  return `${what} has these libraries in it.\n\n${notices.join(`\n${'-'.repeat(78)}\n\n`)}`
}

interface Package {
  readonly name: string
  readonly version: string
  readonly license?: string
}
