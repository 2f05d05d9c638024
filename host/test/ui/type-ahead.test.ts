import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { discardTypeAhead } from '../../ui/type-ahead.ts'

it('keys that were pressed before a question answer nothing, also where the terminal was left paused [S1.11 H.01]', async () => {
  const input = new PassThrough()
  Object.assign(input, { isTTY: true, setRawMode: () => input })
  input.pause()
  input.write('\u001b[A\r')
  await discardTypeAhead(input)
  const heard: string[] = []
  input.on('data', (keys: Buffer) => heard.push(String(keys)))
  input.resume()
  input.write('n')
  await expect.poll(() => heard).toEqual(['n'])
})
