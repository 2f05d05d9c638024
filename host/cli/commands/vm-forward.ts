/** `caisson vm forward`: a port of the guest on the loopback of this machine. */
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { Stop } from './stop.ts'

export async function vmForward(io: Io, name: string, ports: string): Promise<ExitCode> {
  const { hostPort, guestPort } = parsePorts(ports)
  const vm = await hostOf(io).vms.find(name)
  using stop = new Stop()
  const onFailure = (message: string) => io.stderr.write(`connection closed: ${sanitizeLine(message)}\n`)
  const opening = vm.forward({ guestPort, hostPort, onFailure })
  await using forwarding = await opening.catch((cause: unknown) => {
    const word = errorMessage(cause)
    throw new CaissonError(
      'invalid_options',
      `port ${hostPort} of 127.0.0.1 is not available (${word}); to use a free port: caisson vm forward ${name} 0:${guestPort}`,
    )
  })
  io.stdout.write(
    `127.0.0.1:${forwarding.port} forwards to port ${guestPort} of ${vm.info.id}; press Ctrl-C to stop\n`,
  )
  await vm.ended(stop.signal)
  if (stop.signal.aborted) return exitCodes.completed
  io.stderr.write(`${vm.info.id} has ended\n`)
  return exitCodes.failed
}

/** `GUESTPORT` or `HOSTPORT:GUESTPORT`; 0 as the host's is any free one. */
function parsePorts(text: string): { hostPort: number; guestPort: number } {
  const match = /^(?:(\d{1,5}):)?(\d{1,5})$/.exec(text)
  const guestPort = Number(match?.[2])
  const hostPort = Number(match?.[1] ?? match?.[2])
  if (match === null || guestPort < 1 || guestPort > 0xffff || hostPort > 0xffff)
    throw new CaissonError('invalid_options', `expected [HOSTPORT:]GUESTPORT such as 8080:80, saw "${text}"`)
  return { hostPort, guestPort }
}
