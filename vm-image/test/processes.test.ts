// The guest's one place that forks, in a Python of this machine.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const guest = path.resolve(import.meta.dirname, '../guest')

/** A child that is forked while another thread is about to start a program, and that never gets to a program of its own. */
const program = `
import os, sys, threading, time, _signal as signal
sys.dont_write_bytecode = True
sys.path.insert(0, ${JSON.stringify(guest)})
import processes
table = processes.Processes()
null = os.open('/dev/null', os.O_RDWR)
started = []
def start():
    started.append(table.spawn(('/bin/true',), {}, null, null, null))
other = threading.Thread(target=start, daemon=True)
with table._lock:
    before = len(os.listdir('/proc/self/fd'))
    other.start()
    # Until it waits for the lock, with whatever it has opened by then.
    for _ in range(200):
        if len(os.listdir('/proc/self/fd')) > before:
            break
        time.sleep(0.005)
    frozen = os.fork()
    if frozen == 0:
        signal.pause()
        os._exit(0)
other.join(40)
print('began' if started else 'waits for a child that is not its own')
os.kill(frozen, signal.SIGKILL)
`

it('starts a program while another child is held before it has begun [S1.04]', async () => {
  const { stdout } = await promisify(execFile)('python3', ['-c', program], { timeout: 50_000 })
  expect(stdout).toBe('began\n')
})
