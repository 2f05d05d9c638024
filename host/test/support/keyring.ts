/**
 * A stand-in for `secret-tool` (libsecret 0.20): the same arguments, inputs, outputs and exit codes, with files in the
 * place of a keyring. It writes down what it is called with, which is what every user of the machine can see.
 */
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const script = `#!/bin/sh
folder=$(dirname "$0")
printf '%s\\n' "$*" >> "$folder/calls"
if [ -e "$folder/locked" ]; then printf 'secret-tool: \\033[2JCannot get secret of a locked object\\n' >&2; exit 1; fi
for name; do :; done
case $1 in
  store) cat > "$folder/kept-$name" ;;
  lookup) [ -e "$folder/kept-$name" ] && cat "$folder/kept-$name" ;;
  clear) rm -f "$folder/kept-$name" ;;
  *) echo 'usage: secret-tool' >&2; exit 2 ;;
esac
`

export interface TestKeyring {
  /** PATH on which the keyring's program is. */
  readonly PATH: string
  /** What the program was called with, one line a call. */
  calls(): Promise<string>
  /** From now on it answers as a keyring that nobody unlocks. */
  lock(): Promise<void>
  /** What it keeps under a name. */
  kept(name: string): Promise<string | undefined>
}

/** Call it from within a test. */
export async function testKeyring(): Promise<TestKeyring> {
  const folder = await temporaryFolder('keyring')
  await writeFile(path.join(folder, 'secret-tool'), script, { mode: 0o700 })
  return {
    PATH: `${folder}${path.delimiter}${process.env.PATH ?? ''}`,
    calls: async () => await readFile(path.join(folder, 'calls'), 'utf8').catch(() => ''),
    lock: async () => await writeFile(path.join(folder, 'locked'), ''),
    kept: async (name) => await readFile(path.join(folder, `kept-${name}`), 'utf8').catch(() => undefined),
  }
}
