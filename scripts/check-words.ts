// Checks words, width of comments and length of sentences in all files that git tracks. Fails on each finding and on
// entries of the allow-list that no text needs.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { type AllowedWord, allowed, findLongSentences, findWideComments, findWords } from './words.ts'

/** The rules themselves, others' text, and recorded bytes. */
const excluded =
  /^scripts\/words\.ts$|(?:^|\/)(?:package-lock|packages\.lock)\.json$|\.golden\.json$|\/fixtures\//
const textFile = /\.(?:ts|mjs|js|py|sh|md|json|toml|html|css|yml)$|^[^.]*$/

const files = execFileSync('git', ['ls-files', '-z'], { encoding: 'utf8' })
  .split('\0')
  .filter((file) => textFile.test(file) && !excluded.test(file) && existsSync(file))
const used = new Set<AllowedWord>()
const findings = files.flatMap((file) => {
  const text = readFileSync(file, 'utf8')
  return [
    ...findWords(file, text, used),
    ...(file.endsWith('.ts') ? findWideComments(file, text) : []),
    ...(file.endsWith('.md') ? findLongSentences(file, text) : []),
  ]
})
for (const { file, line, problem } of findings) console.error(`${file}:${line}: ${problem}`)
const spare = allowed.filter((entry) => !used.has(entry))
for (const { phrase, because } of spare)
  console.error(`scripts/words.ts: nothing needs the entry for "${phrase}" (${because})`)
console.log(`${files.length} files, ${findings.length + spare.length} problems`)
process.exit(findings.length + spare.length === 0 ? 0 : 1)
