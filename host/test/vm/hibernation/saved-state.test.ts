import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { type Duplex, duplexPair } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { MachineStreamError } from '../../../vm/hibernation/machine-stream.ts'
import {
  intoFile,
  intoMemoryAndRest,
  SavedStateError,
  saveState,
} from '../../../vm/hibernation/saved-state.ts'
import { Qmp } from '../../../vm/qemu/qmp.ts'

interface Command {
  readonly execute: string
  readonly id: number
  readonly arguments?: { readonly uri?: string }
}

const STATE = 'a state in a form that nobody knows'

/** A QEMU as its monitor shows it, whose state is a few bytes, or that fails after them. */
class Qemu {
  readonly commands: string[] = []
  readonly host: Duplex
  #status = 'none'

  constructor({ fails }: { readonly fails: boolean }) {
    const [host, peer] = duplexPair()
    this.host = host
    let text = ''
    peer.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n')) {
        const command = JSON.parse(text.slice(0, end)) as Command
        text = text.slice(end + 1)
        this.commands.push(command.execute)
        const status = { status: this.#status, 'error-desc': 'it broke' }
        peer.write(
          `${JSON.stringify({ return: command.execute === 'query-migrate' ? status : {}, id: command.id })}\n`,
        )
        if (command.execute === 'migrate') this.#send(command.arguments?.uri ?? '', fails)
      }
    })
    peer.write('{"QMP":{"version":{"qemu":{"micro":22,"minor":2,"major":7}},"capabilities":[]}}\n')
  }

  #send(uri: string, fails: boolean): void {
    const socket = connect(uri.replace('unix:', ''))
    socket.on('error', () => {
      this.#status = 'failed'
    })
    socket.end(STATE, () => {
      this.#status = fails ? 'failed' : 'completed'
    })
  }
}

async function save({ fails = false, folderName = 'sockets', file = 'state', receive = intoFile }) {
  const root = await temporaryFolder('state')
  const sockets = join(root, folderName)
  await mkdir(sockets)
  // As the confined QEMU sees it.
  await symlink(sockets, join(root, 's'))
  const qemu = new Qemu({ fails })
  const saved = saveState(await Qmp.connect(qemu.host), {
    socketFolder: sockets,
    insidePath: (name) => join(root, 's', name),
    receive: receive(join(root, file)),
    withoutMemory: false,
    deadlineMs: 10_000,
  })
  await saved.catch(() => undefined)
  expect(await readdir(sockets)).toEqual([])
  return { saved, qemu, text: () => readFile(join(root, file), 'utf8') }
}

describe('the state of a machine', () => {
  it.each(['sockets', 's'.repeat(200)])(
    'is in the file when it was saved, however long the path of its socket [V.04]',
    async (folderName) => {
      const { saved, qemu, text } = await save({ folderName })
      await saved
      expect(await text()).toBe(STATE)
      expect(qemu.commands.slice(1, 3)).toEqual(['stop', 'migrate-set-capabilities'])
    },
  )

  it('is an error when QEMU fails, which gets the request to cancel [V.04]', async () => {
    const { saved, qemu } = await save({ fails: true })
    await expect(saved).rejects.toThrow(SavedStateError)
    expect(qemu.commands).toContain('migrate_cancel')
  })

  it('is an error when the file cannot be written [V.04]', async () => {
    const { saved, qemu } = await save({ file: 'no/such/folder/state' })
    await expect(saved).rejects.toThrow(SavedStateError)
    expect(qemu.commands).toContain('migrate_cancel')
  })

  it('is an error of its own when it is none that is known, and QEMU has given it up then [V.04]', async () => {
    const receive = (file: string) =>
      intoMemoryAndRest({ memory: `${file}.memory`, memoryBytes: 4096, rest: file })
    const root = await temporaryFolder('files')
    const file = join(root, 'state')
    await Promise.all([file, `${file}.memory`].map((each) => writeFile(each, '')))
    const { saved, qemu } = await save({ receive: () => receive(file) })
    await expect(saved).rejects.toMatchObject({ cause: expect.any(MachineStreamError) })
    expect(qemu.commands.slice(-2)).toEqual(['migrate_cancel', 'query-migrate'])
  })
})
