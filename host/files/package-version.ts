import { readFileSync } from 'node:fs'

/** The version in the package's own package.json, two folders up in the repository and three in `dist/`. */
export function readPackageVersion(): string {
  for (const place of ['../../package.json', '../../../package.json']) {
    try {
      const found = JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8')) as {
        name?: string
        version?: string
      }
      if (found.name === 'caisson' && found.version !== undefined) return found.version
    } catch {
      // not there: the other place
    }
  }
  return '0.0.0'
}
