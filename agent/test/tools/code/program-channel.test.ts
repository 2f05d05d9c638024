// The socket of one program: real connections of strangers, and of whoever has the token.
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import type { ProgramTools } from '../../../tool-calls/tool.ts'
import { channelVariable, ProgramChannel } from '../../../tools/code/program-channel.ts'

async function openChannel() {
  const called: string[] = []
  const busy: boolean[] = []
  const tools: ProgramTools = {
    functions: [],
    callsLeft: 500,
    call: async (name, argumentsText, signal) => {
      called.push(`${name} ${argumentsText}`)
      if (name === 'wait') await once(signal, 'abort')
      return { ok: true, value: name }
    },
  }
  const channel = await ProgramChannel.open(tools, (isBusy) => busy.push(isBusy))
  const [name = '', token = ''] = channel.env[channelVariable]?.split(' ') ?? []
  const reach = async (): Promise<Socket> => {
    const socket = connect({ path: `\0${name}` }).on('error', () => undefined)
    await once(socket, 'connect')
    return socket
  }
  return { channel, token, reach, called, busy }
}

/** What the socket gives until its end. */
async function textOf(socket: Socket): Promise<string> {
  let text = ''
  socket.setEncoding('utf8').on('data', (piece: string) => {
    text += piece
  })
  // An error before it is no more than an end.
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve))
  return text
}

const request = (id: number, tool = 'look') => `${JSON.stringify({ id, tool, arguments: '{}' })}\n`

it('is closed to whoever has no token or another one, and to a second one with the token [A.14]', async () => {
  const { channel, token, reach, called } = await openChannel()
  const silent = await Promise.all(Array.from({ length: 12 }, reach))
  const guess = await reach()
  guess.write(`${'x'.repeat(token.length)}\n${request(1)}`)
  expect(await textOf(guess)).toBe('')
  const program = await reach()
  program.write(`${token}\n${request(1)}`)
  const [answer] = await once(program, 'data')
  expect(JSON.parse(String(answer))).toEqual({ id: 1, value: 'look' })
  for (const stranger of silent) expect(await textOf(stranger)).toBe('')
  await expect(reach()).rejects.toThrow()
  expect(called).toEqual(['look {}'])
  await channel[Symbol.asyncDispose]()
  expect(await textOf(program)).toBe('')
})

it('ends the calls that are under way with the program, and takes none after it [A.14]', async () => {
  const { channel, token, reach, called, busy } = await openChannel()
  const program = await reach()
  program.write(`${token}\n${request(1, 'wait')}`)
  while (called.length === 0) await new Promise(setImmediate)
  const ended = textOf(program)
  await channel[Symbol.asyncDispose]()
  program.write(request(2))
  await ended
  expect(called).toEqual(['wait {}'])
  expect(busy).toEqual([true, false])
  await expect(reach()).rejects.toThrow()
})
