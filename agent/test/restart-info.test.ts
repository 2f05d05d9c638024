// What PID 1 wrote down about earlier agent processes.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { readExits } from '../restart-info.ts'

function readText(text: string) {
  const folder = mkdtempSync(join(tmpdir(), 'caisson-exits-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'exits.json')
  writeFileSync(file, text)
  return readExits(file)
}

describe('readExits', () => {
  it('says how the last process ended', () => {
    const last = { code: null, signal: 'SIGKILL', atMs: 1, stderrTail: 'out of memory\n' }
    const { restarts, lastExit } = readText(JSON.stringify({ restarts: 2, last }))
    expect([restarts, lastExit]).toEqual([2, 'signal SIGKILL; the end of its stderr:\nout of memory'])
  })

  it('takes a first process, a missing file and a broken one as nothing to tell', () => {
    for (const text of ['{"restarts":0,"last":null}', '', '{"restarts":"x"}', '[]']) {
      expect(readText(text)).toEqual({ restarts: 0 })
    }
    expect(readExits('/nonexistent/exits.json')).toEqual({ restarts: 0 })
    expect(readExits(undefined)).toEqual({ restarts: 0 })
  })
})
