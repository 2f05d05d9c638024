/**
 * The agent's log: pino's JSON lines, sent to the host as `log/write` and, from warn on, to stderr, where PID 1 keeps
 * the last of them for a crash report. Never blocks the agent; drops and counts what the link cannot take.
 */
import { type DestinationStream, type Logger, pino } from 'pino'
import type { LogEntry } from './log-outbox.ts'

export type { Logger } from 'pino'

const warnLevel = 40

/**
 * Creates a logger of `level` (pino's names) and above. `send` receives the lines for the host, such as a HostLink's
 * `log`; `stderr` those for the console.
 */
export function createLogger(
  send: (entry: LogEntry) => void,
  {
    level = 'info',
    stderr = process.stderr,
  }: { level?: string; stderr?: { write(text: string): unknown } } = {},
): Logger {
  const destination: DestinationStream = {
    write(line: string) {
      const entry = parseLine(line)
      send(entry.entry)
      if (entry.level >= warnLevel) stderr.write(line)
    },
  }
  return pino({ level, base: null }, destination)
}

function parseLine(line: string): { entry: LogEntry; level: number } {
  const { level, msg, ...fields } = JSON.parse(line) as { level: number; msg?: string }
  return { entry: { level: levelName(level), message: msg ?? '', fields: JSON.stringify(fields) }, level }
}

function levelName(level: number): LogEntry['level'] {
  if (level >= 50) return 'error'
  if (level >= warnLevel) return 'warn'
  return level >= 30 ? 'info' : 'debug'
}
