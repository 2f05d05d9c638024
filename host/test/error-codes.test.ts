// Codes that have no test of their own elsewhere, each thrown by the code that throws it to a caller.
import { createServer } from 'node:net'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { FramedStream } from '#specs/node/framed-stream.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { controlFrameMaxBytes } from '../control/messages.ts'
import { VmClient } from '../control/vm-client.ts'
import { Host } from '../host.ts'
import { failureOfLink, failureOfWake, WorkEnds } from '../runs/guest/guest-end.ts'

async function makeHost(): Promise<Host> {
  const home = path.join(await temporaryFolder('codes'), 'home')
  return new Host({ env: { PATH: process.env.PATH, HOME: home, CAISSON_HOME: home } })
}

it('a plan, a directory and a VM that cannot be have codes of their own [E.01 H.01]', async () => {
  const host = await makeHost()
  await expect(host.run({ prompt: 'x', plan: { from: {} as never } })).rejects.toMatchObject({
    code: 'invalid_plan',
  })
  await expect(host.run({ prompt: 'x', workspace: '/' })).rejects.toMatchObject({
    code: 'workspace_refused',
  })
  await expect(host.vms.find('nope')).rejects.toMatchObject({ code: 'vm_not_found' })
})

it('a host process of another version is distinguished from one that is gone [E.01 V.08]', async () => {
  const file = path.join(await temporaryFolder('codes'), 'control.sock')
  const server = createServer((socket) => {
    const stream = new FramedStream(socket, controlFrameMaxBytes)
    void stream.next().then(() => stream.sendJson({ protocol: 99 }))
  })
  await new Promise<void>((resolve) => server.listen(file, resolve))
  onTestFinished(() => void server.close())
  await expect(VmClient.connect(file)).rejects.toMatchObject({ code: 'version_mismatch' })
  await expect(VmClient.connect(`${file}.none`)).rejects.toMatchObject({ code: 'connection_lost' })
})

it('an agent that breaks the protocol, and a VM that is gone, end the work with their codes [E.01 E.02]', async () => {
  const broken = new WorkEnds()
  broken.loseAgent('protocol_violation', 'a step ended that never began')
  await expect(broken.completion()).rejects.toMatchObject({ code: 'protocol_violation' })
  const silent = new WorkEnds()
  silent.lose(failureOfLink({ reason: 'silent', message: 'the agent does not answer' }))
  await expect(silent.completion()).rejects.toMatchObject({ code: 'agent_lost' })
  const gone = new WorkEnds()
  gone.lose(failureOfWake(new Error('QEMU ended')))
  await expect(gone.completion()).rejects.toMatchObject({ code: 'vm_lost' })
})
