// Which call made each line of a file, asked over HTTP.
import { expect, it } from 'vitest'
import { runThatTold } from '../../host/test/blame/support.ts'
import { changedRunId } from '../../host/test/support/changed-run.ts'
import { serveHost } from './support.ts'

it('a route names the call of each line, with what the library says, and refuses what has none [W.09, H.02]', async () => {
  const [one, two] = ['a\nb\n', 'a\nc\n<b>d\n']
  const before = { f: one, gone: 'x\n' }
  const { host, directory } = await runThatTold(before, { f: two, link: '-> f' }, async (told) => {
    await told.turn(1, ['c1'])
    await told.edit([['f', one, 'a\nc\n']])
    await told.command('echo "<b>d" >> f')
    await told.command('true')
    await told.call('delete_file', { path: 'gone' }, { writes: ['gone'] })
  })
  const { client } = await serveHost(host, { workspaces: [directory] })
  const params = { run: changedRunId }
  const found = await client.call('blameLines', { params, query: { path: 'f' } })
  expect(found).toEqual(await host.blame(changedRunId, 'f'))
  expect(found.lines.map(({ origin }) => origin.kind)).toEqual(['workspace', 'call', 'candidates'])
  expect(found.removed).toMatchObject([{ line: 2, text: 'b', origin: { kind: 'call', call: 0 } }])
  const gone = await client.call('blameLines', { params, query: { path: 'gone' } })
  expect(gone).toMatchObject({ change: 'deleted', deletion: { kind: 'call' }, calls: [{ callId: 'c4' }] })
  const refused = async (path: string) =>
    await client
      .call('blameLines', { params, query: { path } })
      .catch(({ status, code }: Record<string, unknown>) => [status, code])
  expect(await refused('link')).toEqual([409, 'not_possible_now'])
  expect(await refused('none')).toEqual([400, 'invalid_options'])
  expect(await refused('../f')).toEqual([400, 'invalid_request'])
})
