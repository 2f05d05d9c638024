/** Where a key comes from. The key itself is never part of the configuration. */
import * as z from 'zod'

/** Of a provider or a key. */
export const Name = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, 'expected 1 to 64 of a-z 0-9 _ -')

/** Where a key is taken from, when it is needed; never the key itself. */
export const KeySource = z.union(
  [
    /** A variable of the environment. */
    z.strictObject({ env: z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/) }),
    /** A file that only the user can read; `~/` means the home folder. */
    z.strictObject({ file: z.string().min(1) }),
    /** The system's keyring, as `caisson key set NAME` puts it there. */
    z.strictObject({ keyring: Name }),
    /** A program and its arguments; it prints the key. No shell. */
    z.strictObject({ command: z.array(z.string().min(1)).min(1).max(64) }),
  ],
  {
    error:
      'expected where the key is, not the key: one of { env = "NAME" }, { file = "PATH" }, { keyring = "name" }, ' +
      '{ command = ["PROGRAM", "ARGUMENT"] }',
  },
)
export type KeySource = z.infer<typeof KeySource>
