/**
 * Checks whether others could change what a path leads to. Every directory, link and target must belong to this user or
 * the system, and no other user may write to it. Reads only; knows nothing of the path's purpose.
 */
import { lstatSync, readlinkSync, type Stats } from 'node:fs'
import path from 'node:path'

/** Links that one path may go through; Linux's own bound. */
const MAX_LINKS = 40
const STICKY = 0o1000
/** Groups whose members may do everything anyway: root's (wheel), and macOS's `admin`, to which Homebrew's folders belong. */
const SYSTEM_GROUPS: ReadonlySet<number> = new Set(process.platform === 'darwin' ? [0, 80] : [0])

/** What on the way others can change. */
export interface Distrust {
  /** The directory, link or file. */
  readonly at: string
  /** Such as `can be written by others (mode 777)`. */
  readonly why: string
}

/**
 * The first thing on the way to `place`, which included, that another user can change; nothing if there is none. What
 * does not exist ends the way: it is still to be made. Throws the system's error for what cannot be looked at.
 * @param place absolute
 */
export function findDistrust(place: string): Distrust | undefined {
  const me = process.getuid?.()
  if (me === undefined) return
  const { root } = path.parse(place)
  const owners = trustedOwners(me, root)
  const pending = namesOf(place).reverse()
  let here = root
  let links = 0
  for (let at = root; ; ) {
    const stat = lstatSync(at, { throwIfNoEntry: false })
    if (stat === undefined) return
    const why = judge(stat, me, owners)
    if (why !== undefined) return { at, why }
    if (stat.isSymbolicLink()) {
      if (++links > MAX_LINKS) return { at, why: 'goes round in symbolic links' }
      const target = readlinkSync(at)
      if (path.isAbsolute(target)) here = root
      pending.push(...namesOf(target).reverse())
    } else here = at
    const name = pending.pop()
    if (name === undefined) return
    if (!stat.isDirectory() && !stat.isSymbolicLink()) return
    at = path.join(here, name)
  }
}

function namesOf(place: string): string[] {
  return place.split(path.sep).filter((name) => name !== '' && name !== '.')
}

/** In a container, files of the system may appear to belong to nobody: accept the owner of the root directory. */
function trustedOwners(me: number, root: string): ReadonlySet<number> {
  return new Set([0, me, lstatSync(root).uid])
}

function judge(stat: Stats, me: number, owners: ReadonlySet<number>): string | undefined {
  if (!owners.has(stat.uid)) {
    const what = stat.isSymbolicLink() ? 'is a symbolic link of' : 'belongs to'
    return `${what} user ${stat.uid}, who is neither you (${me}) nor root`
  }
  // A link's own mode means nothing; in a sticky directory only the owner of a name may move or remove it.
  if (stat.isSymbolicLink() || (stat.isDirectory() && (stat.mode & STICKY) !== 0)) return
  const mode = `(mode ${(stat.mode & 0o7777).toString(8)})`
  if ((stat.mode & 0o002) !== 0) return `can be written by others ${mode}`
  if ((stat.mode & 0o020) !== 0 && !isOwnGroup(stat.gid, me))
    return `can be written by the group ${stat.gid} ${mode}`
  return
}

/** A group of this user alone, as distributions give one of the same number, or one of administrators. */
function isOwnGroup(gid: number, me: number): boolean {
  return SYSTEM_GROUPS.has(gid) || (gid === me && process.getgid?.() === gid)
}
