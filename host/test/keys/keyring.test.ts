import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { removeFromKeyring, storedKeys, storeInKeyring } from '../../keys/keyring.ts'
import { inspectKey, resolveKey } from '../../keys/keys.ts'
import { testKeyring } from '../support/keyring.ts'

const key = "nvapi-'quoted' $(id) 0123456789"

async function openKeyring() {
  const keyring = await testKeyring()
  const home = await temporaryFolder('state')
  return { keyring, home, place: { folders: { home }, env: { PATH: keyring.PATH } } }
}

describe("the system's keyring", () => {
  it('takes a key on standard input, and gives it back by its name [S0.09]', async () => {
    const { keyring, home, place } = await openKeyring()
    expect(await storeInKeyring('nvidia', key, place)).toMatchObject({ ok: true })
    expect(await keyring.kept('nvidia')).toBe(key)
    const read = await resolveKey({ keyring: 'nvidia' }, place)
    expect(read.ok && read.value.reveal()).toBe(key)
    expect(await keyring.calls()).toContain('service caisson key nvidia')
    expect(await keyring.calls()).not.toContain(key)
    const files = await Promise.all(
      (await readdir(home)).map((name) => readFile(path.join(home, name), 'utf8')),
    )
    expect(files.join()).not.toContain(key)
    expect((await stat(path.join(home, 'keys.json'))).mode & 0o777).toBe(0o600)
  })

  it('is not asked for what names there are, and replaces and removes by name [S0.09]', async () => {
    const { keyring, place } = await openKeyring()
    for (const name of ['b', 'a', 'b']) await storeInKeyring(name, `${key}-${name}`, place)
    expect(await storedKeys(place)).toEqual(['a', 'b'])
    expect(await inspectKey({ keyring: 'a' }, place)).toMatchObject({ ok: true })
    expect(await removeFromKeyring('a', place)).toMatchObject({ ok: true })
    expect(await storedKeys(place)).toEqual(['b'])
    expect(await keyring.kept('a')).toBeUndefined()
    expect(await inspectKey({ keyring: 'a' }, place)).toMatchObject({
      ok: false,
      error: expect.stringContaining('caisson key set a'),
    })
  })

  it('that has no such key, is locked or is not there says so, and what else can hold a key [S0.09]', async () => {
    const { keyring, place } = await openKeyring()
    expect(await resolveKey({ keyring: 'other' }, place)).toMatchObject({
      ok: false,
      error: expect.stringMatching(/has no key "other".*caisson key set other/),
    })
    await storeInKeyring('nvidia', key, place)
    await keyring.lock()
    expect(await resolveKey({ keyring: 'nvidia' }, place)).toMatchObject({
      ok: false,
      error: expect.stringMatching(/locked object; .*\{ file = "PATH" \}/),
    })
    const refused = await storeInKeyring('more', key, place)
    expect(refused).toMatchObject({ ok: false, error: expect.stringContaining('did not store the key') })
    expect(JSON.stringify(refused)).not.toContain(key)
    expect(await storedKeys(place)).toEqual(['nvidia'])

    const bare = { ...place, env: { PATH: '/nowhere' } }
    const found = await resolveKey({ keyring: 'nvidia' }, bare)
    // Where the system has a keyring's program after all it has no such key.
    expect(found).toMatchObject({ ok: false, error: expect.stringMatching(/\{ env = "NAME" \}|has no key/) })
  })

  it('is not led astray by a damaged list of names [S0.09]', async () => {
    const { home, place } = await openKeyring()
    for (const text of ['not JSON', '{"a":1}', '["UPPER"]', '["../../x"]', '[1]']) {
      await writeFile(path.join(home, 'keys.json'), text)
      expect(await storedKeys(place)).toEqual([])
    }
    expect(await storeInKeyring('good', key, place)).toMatchObject({ ok: true })
    expect(await storedKeys(place)).toEqual(['good'])
  })
})
