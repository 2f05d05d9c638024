// Runs with an output schema in real VMs.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace, runArguments } from '../support/cli.ts'
import { testBench } from '../support/runs.ts'

const outputSchema = {
  type: 'object',
  properties: { total: { type: 'integer' }, unit: { type: 'string' } },
  required: ['total'],
}

describe('a run with an output schema', () => {
  it('ends with JSON that fits, which the result has as a value, or fails and keeps the text [A.12 H.05]', async () => {
    const replies = ['It is three.', '{"total":"3"', '{"unit":"kg","total":3}']
    let asked = 0
    await using model = await startModelServer(() => reply({ text: replies[asked++] ?? 'It is four.' }))
    const bench = await testBench({}, { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'm' })
    const { run, state } = await bench.run('What is the total?', { outputSchema })
    expect(state.end).toMatchObject({ summary: '{"unit":"kg","total":3}', structured: true })
    expect(await run.result()).toMatchObject({ outcome: 'completed', value: { total: 3, unit: 'kg' } })
    const failed = await bench.run('And now?', { outputSchema })
    expect(await failed.run.result()).toEqual(
      expect.objectContaining({
        outcome: 'failed',
        reason: 'answer_invalid',
        message: expect.stringContaining('does not fit the output schema'),
        summary: 'It is four.',
      }),
    )
    expect(await failed.run.result()).not.toHaveProperty('value')
  }, 300_000)

  it('is served by the offline model where the schema is simple, and a file that is none starts nothing [A.12 S0.06 H.01]', async () => {
    const place = await cliPlace({ 'a.txt': 'one two three\n' })
    const file = path.join(await temporaryFolder('schema'), 'count.json')
    const schema = { type: 'object', properties: { count: { type: 'integer' } }, required: ['count'] }
    await writeFile(file, JSON.stringify(schema))
    const options = ['-q', '--output-schema', file, '-o', 'answer.json', '--no-apply']
    const { code, stdout } = await place.run(...runArguments(place, 'Count the words of a.txt', ...options))
    expect([code, stdout]).toEqual([0, '{"count":3}\n'])
    expect(await readFile(path.join(place.workspace, 'answer.json'), 'utf8')).toBe(stdout)
    await writeFile(file, '{"properties": {"count": {"type": "int"}}}')
    const refused = await place.run(...runArguments(place, 'Count the words of a.txt', ...options))
    expect(refused).toMatchObject({ code: 2, stdout: '' })
    expect(refused.stderr).toContain(`${file}: properties.count.type: expected array`)
    const only = await place.run('run', 'x', '--plan-only', '--output-schema', file)
    expect(only).toMatchObject({ code: 2 })
  }, 300_000)
})
