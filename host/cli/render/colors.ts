/** Colors where a terminal is and nobody declined (NO_COLOR, no-color.org; TERM=dumb). */
import pc from 'picocolors'

export type Colors = ReturnType<typeof pc.createColors>

export function colorsFor(stream: { isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): Colors {
  const wanted = stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb'
  return pc.createColors(wanted || (env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== '0'))
}
