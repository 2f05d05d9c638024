// The agent's log: structured lines to the host, warnings to the console as well.
import { describe, expect, it } from 'vitest'
import { logWrite } from '#specs/protocol/methods.ts'
import type { Peer } from '#specs/protocol/peer.ts'
import { type LogEntry, LogOutbox } from '../../link/log-outbox.ts'
import { createLogger } from '../../link/logger.ts'

describe('the logger', () => {
  it('sends each line as level, message and JSON fields, and warnings to stderr too [S1.12]', () => {
    const sent: LogEntry[] = []
    const console: string[] = []
    const logger = createLogger((entry) => sent.push(entry), {
      level: 'debug',
      stderr: { write: (text) => console.push(text) },
    })
    logger.child({ tool: 'run_bash' }).info({ durationMs: 3 }, 'tool ended')
    logger.debug('detail')
    logger.warn('odd')
    logger.error(new Error('broken'))
    expect(sent.map(({ level, message }) => `${level} ${message}`)).toEqual([
      'info tool ended',
      'debug detail',
      'warn odd',
      'error broken',
    ])
    expect(JSON.parse(sent[0]?.fields ?? '')).toMatchObject({ tool: 'run_bash', durationMs: 3 })
    expect(console).toHaveLength(2)
    for (const entry of sent) expect(logWrite.params.safeParse(entry).success).toBe(true)
  })
})

describe('the queue of log lines', () => {
  it('is bounded, keeps what the protocol takes, and says how much it dropped [S1.12]', async () => {
    const outbox = new LogOutbox()
    for (let index = 0; index < 2_000; index++)
      outbox.add({ level: 'info', message: `${index}`, fields: '{}' })
    outbox.add({ level: 'info', message: 'x'.repeat(100_000), fields: '{}' })
    const taken: LogEntry[] = []
    const peer = {
      notify: async (_method: unknown, entry: LogEntry) => {
        taken.push(entry)
        return { ok: true, value: undefined }
      },
    } as unknown as Peer
    outbox.connect(peer)
    outbox.add({ level: 'info', message: 'y'.repeat(100_000), fields: JSON.stringify('z'.repeat(100_000)) })
    await new Promise((resolve) => setTimeout(resolve, 50))
    outbox.add({ level: 'info', message: 'y'.repeat(100_000), fields: JSON.stringify('z'.repeat(100_000)) })
    await new Promise((resolve) => setTimeout(resolve, 10))
    expect(taken.slice(0, 1_024).map(({ message }) => message)).toEqual(
      Array.from({ length: 1_024 }, (_, index) => `${index}`),
    )
    expect(taken.some(({ message, fields }) => message.includes('dropped') && fields.includes('978'))).toBe(
      true,
    )
    for (const entry of taken) expect(logWrite.params.safeParse(entry).success).toBe(true)
  })
})
