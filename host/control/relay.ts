/** Relays a control connection to a shell's frames or a server's bytes. Limited by backpressure only. */
import type { Duplex } from 'node:stream'
import { waitForDrain } from '#specs/node/drain.ts'
import { type FramedStream, FramedStreamError } from '#specs/node/framed-stream.ts'
import { type FrameKind, frameKinds } from '#specs/node/typed-frames.ts'
import { type ControlFailure, type ControlReply, ShellReply } from './messages.ts'

const toShell: ReadonlySet<FrameKind> = new Set([frameKinds.stdin, frameKinds.windowSize])
const fromShell: ReadonlySet<FrameKind> = new Set([frameKinds.stdout, frameKinds.stderr])

/** Until the shell has ended, which is reported to the client, or the client is gone, which ends the shell. */
export async function relayFrames(client: FramedStream, shell: FramedStream): Promise<ControlFailure | null> {
  void pass(client, shell).catch(() => shell.destroy('the client is gone'))
  try {
    for (let frame = await shell.next(); frame !== null; frame = await shell.next()) {
      if (frame.kind === frameKinds.json) {
        const reply = ShellReply.safeParse(shell.parseJson(frame))
        shell.end()
        if (!reply.success) return brokenOff('the guest reported the end of the shell in an unknown form')
        await client.sendJson(reply.data)
        return null
      }
      if (!fromShell.has(frame.kind)) throw new FramedStreamError('the guest sent input')
      await client.send(frame.kind, frame.payload)
    }
    shell.end()
    return brokenOff('the shell ended without a result: the agent or its VM is gone')
  } catch (error) {
    shell.destroy()
    return brokenOff(error instanceof FramedStreamError ? error.message : String(error))
  }
}

async function pass(client: FramedStream, shell: FramedStream): Promise<void> {
  for (let frame = await client.next(); frame !== null; frame = await client.next()) {
    if (!toShell.has(frame.kind)) throw new FramedStreamError('the client sent output')
    await shell.send(frame.kind, frame.payload)
  }
  // A closed client is not the end of the program's input, which has its own frame.
  shell.destroy('the client is gone')
}

/** Relays one connection: `stdin` to it, `stdout` from it; an empty frame marks the end of either. */
export async function relayBytes(client: FramedStream, inside: Duplex): Promise<ControlFailure | null> {
  inside.on('error', () => undefined)
  void receive(client, inside).catch(() => inside.destroy(new Error('the client is gone')))
  try {
    for await (const piece of inside.iterator({ destroyOnReturn: false }))
      await client.sendBytes(frameKinds.stdout, piece as Buffer)
    await client.send(frameKinds.stdout, Buffer.alloc(0))
    await finished(inside)
    await client.sendJson({ ok: true } satisfies ControlReply)
    return null
  } catch {
    return brokenOff('the connection in the guest was lost')
  }
}

async function receive(client: FramedStream, inside: Duplex): Promise<void> {
  for (let frame = await client.next(); frame !== null; frame = await client.next()) {
    if (frame.kind !== frameKinds.stdin)
      throw new FramedStreamError('the client sent something else than bytes')
    if (frame.payload.length === 0) inside.end()
    else if (inside.writable && !inside.write(frame.payload)) await waitForDrain(inside)
  }
  // The end of its data is a frame, so a closing client is gone. No effect after the end of both.
  throw new FramedStreamError('the client is gone')
}

async function finished(stream: Duplex): Promise<void> {
  if (stream.destroyed) return
  await new Promise<void>((resolve) => stream.once('close', () => resolve()))
}

function brokenOff(message: string): ControlFailure {
  return { code: 'unavailable', message }
}
