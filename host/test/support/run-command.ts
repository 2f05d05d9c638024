/** A command of the command line in this process, with no one at a terminal. */
import { PassThrough, type Readable, Writable } from 'node:stream'
import { runCli } from '../../cli/main.ts'

export interface CommandEnd {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/**
 * @param directory the current one, for `last`; absent: that of this process
 * @param stdin of each command; absent: one on which nothing comes, and no end
 */
export function commandsIn(
  env: Readonly<Record<string, string | undefined>>,
  directory?: string,
  stdin: () => Readable = () => new PassThrough(),
): (...argv: string[]) => Promise<CommandEnd> {
  return async (...argv) => {
    const said = { stdout: '', stderr: '' }
    const to = (name: 'stdout' | 'stderr') =>
      new Writable({
        write: (chunk, _, done) => {
          said[name] += String(chunk)
          done()
        },
      })
    const io = {
      stdin: stdin(),
      stdout: to('stdout'),
      stderr: to('stderr'),
      env,
      version: '0',
      ...(directory === undefined ? {} : { directory }),
    }
    const code = await runCli(argv, io)
    return { code, ...said }
  }
}
