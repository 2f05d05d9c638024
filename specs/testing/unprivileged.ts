/** Runs a child that file permissions hold for, also when the tests run as root. */
import { execFileSync } from 'node:child_process'

/**
 * Runs an ES module of this checkout and returns its standard output. For root it keeps the user and drops every
 * capability, so that it reads a checkout below /root and is still refused by modes such as 0.
 */
export function runUnprivileged(module: string): string {
  const node = [process.execPath, '--conditions=caisson-source', '--input-type=module', '-e', module]
  const dropped = ['setpriv', '--inh-caps=-all', '--bounding-set=-all', ...node]
  const [program = '', ...args] = process.geteuid?.() === 0 ? dropped : node
  return execFileSync(program, args, { encoding: 'utf8' })
}
