// The system's users that QEMU becomes where the host is root: one for each VM, so that no two can read one another's
// memory, and no daemon that is `nobody` can. None has a name; what a VM needs is handed to it or made its own.

import { randomInt } from 'node:crypto'
import { chmod, chown, readdir, stat } from 'node:fs/promises'

/** Numbers that systems leave unused: above those of containers (https://systemd.io/UIDS-GIDS/). */
export const VM_USERS = { first: 0x7000_0000, count: 0x0800_0000 } as const
/** The group of the memory of templates, which the QEMUs of several users map. Of no process but those. */
export const TEMPLATE_GROUP = 0x7800_0000

/** A user that no process is. Two draws agree once in 134 million times. */
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

/** The VM of this user, and nobody else, may map the file. */
export async function giveMemory(file: string, user: number): Promise<void> {
  await chown(file, user, user)
  await chmod(file, 0o600)
}

/** Every VM may map the file; none may write to it where that is not needed to map it privately. */
export async function shareMemory(file: string, readOnly: boolean): Promise<void> {
  // Without root there is one user for all.
  if (process.geteuid?.() !== 0) return
  await chown(file, 0, TEMPLATE_GROUP)
  await chmod(file, readOnly ? 0o640 : 0o660)
}
