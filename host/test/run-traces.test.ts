import { execFileSync } from 'node:child_process'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Feed } from '../journal/run-feed.ts'
import { Secret } from '../keys/secret.ts'
import { directNetwork } from '../net/network.ts'
import { RunTraces } from '../run-traces.ts'
import { Secrets } from '../secrets/secrets.ts'
import { startOtlpReceiver } from './support/otlp-receiver.ts'
import { journalOf, runEnd, runId, runStart } from './traces/support.ts'

const provider = {
  name: 'nvidia',
  model: 'big-model',
  baseUrl: null,
  notes: [],
  key: new Secret('sk-key-of-the-model'),
}
const plan = {
  runId,
  network: directNetwork,
  provider,
  secrets: new Secrets({}, async () => ({ ok: false, error: 'none' })),
}

/** Exports one run as this environment says. @returns what was warned of */
async function exportRun(
  env: Record<string, string>,
  onNotes?: (notes: readonly string[]) => void,
): Promise<string[]> {
  const traces = new RunTraces(env)
  const warnings: string[] = []
  const feed = new Feed()
  const options = onNotes === undefined ? {} : { onNotes }
  traces.observe(feed, plan, options, (notes) => warnings.push(...notes))
  const prompt = 'Never show sk-key-of-the-model'
  for (const line of journalOf([
    [0, runStart({ prompt })],
    [10, runEnd()],
  ]))
    feed.push(line)
  feed.end()
  await traces.close()
  return warnings
}

describe('the traces of a host', () => {
  it('are loaded only where an endpoint is set: not by a command, nor by a run without one [R.04]', () => {
    const script = `
      import { registerHooks } from 'node:module'
      const loaded = []
      registerHooks({ load: (url, context, next) => { loaded.push(url); return next(url, context) } })
      const { RunTraces } = await import(${JSON.stringify(path.join(import.meta.dirname, '../run-traces.ts'))})
      const { runCli } = await import(${JSON.stringify(path.join(import.meta.dirname, '../cli/main.ts'))})
      await runCli(['runs', 'list', '--json'])
      const feed = { observe: () => undefined }
      const plan = { runId: 'run-0123456789abcdef0123', provider: { key: null }, secrets: {}, network: {} }
      const observe = async (env) => {
        const traces = new RunTraces(env)
        traces.observe(feed, plan, {}, () => undefined)
        await traces.close()
        return loaded.filter((url) => url.includes('/host/traces/')).length
      }
      const counts = [await observe({}), await observe({ OTEL_EXPORTER_OTLP_ENDPOINT: ' ' })]
      console.log(JSON.stringify([...counts, (await observe({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://[::1]:1' })) > 5]))
    `
    const args = ['--conditions=caisson-source', '--input-type=module', '--eval', script]
    const env = { ...process.env, CAISSON_HOME: path.join(import.meta.dirname, 'no-such-folder') }
    const output = execFileSync(process.execPath, args, { env, encoding: 'utf8' })
    expect(output.trim().split('\n').at(-1)).toBe('[0,0,true]')
  })

  it('have no key of the model, even where content is asked for [R.04]', async () => {
    await using receiver = await startOtlpReceiver()
    const warnings = await exportRun({
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'true',
    })
    expect(warnings).toEqual([])
    const [root] = receiver.spans()
    expect(root?.attributes['gen_ai.input.messages']).toContain('Never show [redacted]')
  })

  it('tell the owner of the run what cannot be used, or warn the process [R.04]', async () => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }
    const expected = [
      expect.stringContaining('OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf or http/json'),
    ]
    expect(await exportRun(env)).toEqual(expected)
    const notes: string[] = []
    expect(await exportRun(env, (given) => notes.push(...given))).toEqual([])
    expect(notes).toEqual(expected)
  })

  it('never reach the run, whatever its owner does with a note [R.04]', async () => {
    const unhandled: unknown[] = []
    const onUnhandled = (error: unknown) => unhandled.push(error)
    process.on('unhandledRejection', onUnhandled)
    onTestFinished(() => void process.off('unhandledRejection', onUnhandled))
    const fails = (): never => {
      throw new Error('the note failed')
    }
    await exportRun({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' }, fails)
    await exportRun({ OTEL_EXPORTER_OTLP_ENDPOINT: 'nowhere' }, fails)
    await new Promise((resolve) => setTimeout(resolve, 20))
    expect(unhandled).toEqual([])
  })
})
