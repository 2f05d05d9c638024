// System users for QEMU when the host is root: one for each VM, so that no VM can read another's memory, and no daemon
// running as `nobody` can. They have no names; each VM's files are passed to it or owned by its user.

import { randomInt } from 'node:crypto'
import { chmod, chown, readdir, stat } from 'node:fs/promises'

/** Unused user ids above those of containers (https://systemd.io/UIDS-GIDS/). */
export const VM_USERS = { first: 0x7000_0000, count: 0x0800_0000 } as const
/** Group of template memory, which QEMUs of several users map. Used only by these processes. */
export const TEMPLATE_GROUP = 0x7800_0000

/** A user id without processes. Two draws collide once in 134 million times. */
export async function drawVmUser(): Promise<number> {
  const taken = await usersAtWork()
  for (;;) {
    const user = VM_USERS.first + randomInt(VM_USERS.count)
    if (!taken.has(user)) return user
  }
}

async function usersAtWork(): Promise<ReadonlySet<number>> {
  const names = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))
  const users = names.map(async (name) => (await stat(`/proc/${name}`).catch(() => undefined))?.uid)
  return new Set((await Promise.all(users)).filter((user) => user !== undefined))
}

/** Allows only the VM of this user to map the file. */
export async function giveMemory(file: string, user: number): Promise<void> {
  await chown(file, user, user)
  await chmod(file, 0o600)
}

/** Allows every VM to map the file; write access only where private mapping needs it. */
export async function shareMemory(file: string, readOnly: boolean): Promise<void> {
  // Without root, all VMs share one user.
  if (process.geteuid?.() !== 0) return
  await chown(file, 0, TEMPLATE_GROUP)
  await chmod(file, readOnly ? 0o640 : 0o660)
}
