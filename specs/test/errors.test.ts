/** The codes of errors: what the document says of them, and what an error has. */
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { CaissonError, type ErrorCode, errorCodes, errorMessage, hasCode } from '../errors.ts'

const codes = Object.keys(errorCodes) as ErrorCode[]

describe('the codes of errors', () => {
  it('are those of the document, in its order, each with its exit code and reason of a run [E.01 E.02]', () => {
    const text = readFileSync(path.join(import.meta.dirname, '../errors.md'), 'utf8')
    const rows = [...text.matchAll(/^\| `(\w+)` \| (\d) \| (\w+) \| (.*) \| (.*)\|$/gm)]
    expect(rows.map(([, code, exit, reason]) => [code, Number(exit), reason])).toEqual(
      codes.map((code) => [code, errorCodes[code].exit, errorCodes[code].reason]),
    )
    for (const [, code, , , meaning = ''] of rows) expect(meaning.trim(), code).not.toBe('')
  })
})

/** Codes that no test of the fast project sees thrown, each with the reason. */
const unseen: Partial<Record<ErrorCode, string>> = {
  lock_unsupported: 'needs a file system without locks, such as NFS without its lock manager',
}

describe('each code', () => {
  it('is expected of what is thrown by some test, or listed with the reason why not [E.01]', () => {
    const root = path.join(import.meta.dirname, '../..')
    const tests = ['specs', 'runtime', 'host', 'test'].flatMap((folder) =>
      readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
        .filter((file) => file.endsWith('.test.ts'))
        .map((file) => readFileSync(path.join(root, folder, file), 'utf8')),
    )
    const thrown = (code: ErrorCode) =>
      tests.some((text) =>
        new RegExp(
          `(?:rejects|\\))\\.toMatchObject\\(\\{[^{}]*?code: '${code}'|objectContaining\\(\\{ code: '${code}'`,
        ).test(text),
      )
    expect(codes.filter((code) => !thrown(code))).toEqual(Object.keys(unseen))
  })
})

describe('an error', () => {
  it('ends its message with the remedy, which it also has alone [E.01]', () => {
    const error = new CaissonError('no_space', 'the disk is full', { remedy: 'free some space' })
    expect(error).toMatchObject({ code: 'no_space', remedy: 'free some space', name: 'CaissonError' })
    expect(error.message).toBe('the disk is full; free some space')
    expect(new CaissonError('no_space', 'It is full.', { remedy: 'Free some.' }).message).toBe(
      'It is full. Free some.',
    )
    expect(new CaissonError('internal', 'it failed').remedy).toBeUndefined()
  })

  it('is made of anything thrown, which it keeps as its cause and never shows twice [E.01]', () => {
    const own = new CaissonError('run_busy', 'it runs')
    expect(CaissonError.from(own)).toBe(own)
    expect(CaissonError.from(new SuppressedError(new Error('closing'), own, 'two'))).toBe(own)
    const denied = Object.assign(new Error('EACCES: permission denied'), { code: 'EACCES' })
    expect(CaissonError.from(denied)).toMatchObject({ code: 'permission_denied', cause: denied })
    const full = Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' })
    expect(CaissonError.from(full).code).toBe('no_space')
    expect(CaissonError.from(AbortSignal.abort().reason).code).toBe('cancelled')
    expect(CaissonError.from('a text')).toMatchObject({ code: 'internal', message: 'a text' })
    expect(hasCode(own, 'run_busy', 'denied')).toBe(true)
    expect(hasCode(denied, 'permission_denied')).toBe(false)
    expect([errorMessage(denied), errorMessage(null)]).toEqual(['EACCES: permission denied', 'null'])
  })
})
