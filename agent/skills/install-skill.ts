/**
 * Installs the files of one of the user's skills in the sandbox's home folder, where programs can read and run them.
 */
import type { Result } from '#specs/protocol/error.ts'
import type { SkillLoadAnswer } from '#specs/protocol/extension.ts'
import type { Helper } from '../link/root-helper.ts'
import { toolFailure } from '../tool-calls/tool.ts'

const home = '/home/work/.skills'
const limits = { wallMs: 60_000, memoryBytes: 256 * 1024 * 1024, pids: 16, cpuPercent: 100 } as const

/** Written beside its place and renamed, so that no program sees a partial skill. */
const program = `
import base64, json, os, shutil, sys, tempfile
skill = json.load(sys.stdin)
os.makedirs(${JSON.stringify(home)}, exist_ok=True)
fresh = tempfile.mkdtemp(dir=${JSON.stringify(home)})
try:
    for file in skill['files']:
        place = os.path.join(fresh, file['path'])
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, 'xb') as out:
            out.write(base64.b64decode(file['base64']))
        os.chmod(place, int(file['mode'], 8))
    os.chmod(fresh, 0o755)
    target = os.path.join(${JSON.stringify(home)}, skill['id'])
    shutil.rmtree(target, ignore_errors=True)
    os.rename(fresh, target)
except BaseException as error:
    shutil.rmtree(fresh, ignore_errors=True)
    sys.exit(str(error))
`

/** Path of an installed skill of the user. */
export function skillRootOf(skillId: string): string {
  return `${home}/${skillId}`
}

/** @param view the view for programs; absent: the workspace itself */
export async function installSkill(
  helper: Pick<Helper, 'execInSandbox'>,
  { skillId, instructions, files }: SkillLoadAnswer,
  signal: AbortSignal,
  view?: string,
): Promise<Result<void>> {
  const own = { path: 'SKILL.md', mode: '0644', base64: Buffer.from(instructions).toString('base64') }
  let said = ''
  const ended = await helper.execInSandbox(
    {
      argv: ['/usr/bin/python3', '-I', '-c', program],
      ...(view === undefined ? {} : { view }),
      stdin: JSON.stringify({ id: skillId, files: [own, ...files] }),
      limits,
    },
    {
      signal,
      onOutput: (_, bytes) => {
        said = (said + bytes.toString('utf8')).slice(0, 300)
      },
    },
  )
  if (ended.ok && ended.value.exitCode === 0) return { ok: true, value: undefined }
  return toolFailure(
    'unavailable',
    ended.ok ? said.trim() || 'the program failed' : ended.error.message,
    true,
  )
}
