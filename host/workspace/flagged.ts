/**
 * Which changes could run code on the host, or redirect what does, without the person noticing. Such paths are left
 * out of "all" and are applied only when named. A list of places finds the usual ones, not every one: programs that
 * the person starts deliberately (a new script, a test) are not in it.
 */

import path from 'node:path'
import ignore, { type Ignore } from 'ignore'

interface FlagRow {
  readonly reason: string
  /** Patterns as in a .gitignore, at any depth; letter case does not matter. */
  readonly patterns: readonly string[]
}

export const flagTable: readonly FlagRow[] = [
  {
    reason: "git's own configuration, which can name programs that git runs",
    patterns: [
      '**/.git/config',
      '**/.git/config.worktree',
      '**/.git/info/attributes',
      '**/.git/commondir',
      '**/.git/gitdir',
      '**/.git/objects/info/alternates',
      '**/.git/modules/**/config',
      '**/.git/worktrees/**/config.worktree',
      '**/.git/worktrees/**/gitdir',
      '**/.git/worktrees/**/commondir',
      '.gitattributes',
      '.gitmodules',
      '.gitconfig',
    ],
  },
  {
    reason: 'git runs it as a hook',
    patterns: ['**/.git/hooks', '**/.git/modules/**/hooks', '.githooks', '.husky'],
  },
  {
    reason: 'hooks that run at a commit',
    patterns: [
      '.pre-commit-config.y*ml',
      '.pre-commit-hooks.y*ml',
      'lefthook.y*ml',
      '.lefthook.y*ml',
      'lefthook-local.y*ml',
      '.lintstagedrc*',
      'lint-staged.config.*',
      '.overcommit.yml',
    ],
  },
  {
    reason: 'a CI system runs it',
    patterns: [
      '**/.github/workflows',
      '**/.github/actions',
      'action.yml',
      'action.yaml',
      '.gitlab-ci.y*ml',
      '**/.gitlab/ci',
      '.circleci',
      '.travis.yml',
      '.ci',
      'azure-pipelines*.y*ml',
      '.azure-pipelines',
      'bitbucket-pipelines.yml',
      'Jenkinsfile*',
      '.drone.y*ml',
      '.woodpecker',
      '.woodpecker.y*ml',
      '.buildkite',
      'appveyor.yml',
      '.appveyor.yml',
      '.teamcity',
      'cloudbuild.y*ml',
      '.cirrus.yml',
      '.forgejo',
      '.gitea',
      '.semaphore',
    ],
  },
  {
    reason: 'an editor runs tasks or code from it',
    patterns: [
      '.vscode',
      '.idea',
      '.fleet',
      '.zed',
      '.devcontainer',
      '.devcontainer.json',
      '*.code-workspace',
      '*.sublime-project',
      '.exrc',
      '.vimrc',
      '.nvimrc',
      '.nvim.lua',
      '.lvimrc',
      '.vim',
      '.dir-locals.el',
      '.dir-locals-2.el',
      '.emacs',
      '.emacs.d',
    ],
  },
  {
    reason: 'a shell runs it at its start, or when the directory is entered',
    patterns: [
      '.bashrc',
      '.bash_profile',
      '.bash_login',
      '.bash_logout',
      '.bash_aliases',
      '.profile',
      '.zshrc',
      '.zshenv',
      '.zprofile',
      '.zlogin',
      '.zlogout',
      '.cshrc',
      '.tcshrc',
      '.login',
      '.kshrc',
      '.inputrc',
      '**/.config/fish',
      '**/.config/autostart',
      '**/.config/systemd',
      '.xprofile',
      '.xinitrc',
      '.xsession',
      '.envrc',
      '.env',
      '.env.*',
      '.direnv',
      '.tool-versions',
      'mise.toml',
      '.mise.toml',
      '.mise.local.toml',
      'mise.local.toml',
      '.autoenv*',
      '.ssh',
    ],
  },
  {
    reason: 'a package manager obeys it',
    patterns: [
      '.npmrc',
      '.yarnrc',
      '.yarnrc.yml',
      '**/.yarn/releases',
      '**/.yarn/plugins',
      '.pnpmfile.cjs',
      'pnpmfile.js',
      '**/.cargo/config',
      '**/.cargo/config.toml',
      'pip.conf',
      '.pypirc',
      'bunfig.toml',
      '.bundle',
    ],
  },
  {
    reason: 'a build or start command runs it',
    patterns: [
      'Makefile',
      'GNUmakefile',
      'makefile.*',
      '*.mk',
      'justfile',
      '.justfile',
      'Taskfile.y*ml',
      'Rakefile',
      'Gruntfile.*',
      'gulpfile.*',
      'setup.py',
      'noxfile.py',
      'tox.ini',
      'build.rs',
      'build.gradle*',
      'settings.gradle*',
      'gradlew',
      'gradlew.bat',
      '**/gradle/wrapper',
      '**/.mvn',
      'mvnw',
      'CMakeLists.txt',
      'Dockerfile*',
      '*.dockerfile',
      'Containerfile',
      'docker-compose*.y*ml',
      'compose.y*ml',
      'Vagrantfile',
      'Procfile',
      'flake.nix',
      'shell.nix',
      'default.nix',
      'Tiltfile',
      'sitecustomize.py',
      'usercustomize.py',
      '*.pth',
      'binding.gyp',
    ],
  },
  {
    reason: 'another agent or its tools obey it',
    patterns: [
      '.mcp.json',
      '.claude',
      '.cursor',
      '.codex',
      '.gemini',
      '.aider.conf.yml',
      '.opencode',
      'opencode.json',
      '.caissonignore',
    ],
  },
]

const compiled: readonly { readonly reason: string; readonly rules: Ignore }[] = flagTable.map(
  ({ reason, patterns }) => ({
    reason,
    rules: ignore({ ignorecase: true }).add([...patterns]),
  }),
)

/** What {@link flagOf} needs to know of a change. */
export interface FlagSubject {
  readonly path: string
  readonly kind: 'file' | 'directory' | 'link'
  /** A link's target. */
  readonly target?: string
  /** Whether a path is there after the change, as far as the change set and the manifest tell. */
  exists(path: string): boolean
}

/** Why a change has to be named to be applied, or nothing. */
export function flagOf(subject: FlagSubject): string | undefined {
  const plain = foldPath(subject.path)
  if (subject.kind === 'link') {
    if (leadsOutside(subject.path, subject.target ?? '')) return 'a link that leads out of the workspace'
    if (path.posix.basename(plain).startsWith('.')) return 'a link in the place of hidden configuration'
    if (plain.split('/').includes('.git')) return "a link inside git's own directory"
  }
  // A worktree's or submodule's .git is a file that says where the repository lies.
  if (subject.kind !== 'directory' && path.posix.basename(plain) === '.git')
    return 'it tells git where its configuration lies'
  for (const { reason, rules } of compiled) {
    // A directory alone runs nothing; what is in it is flagged by itself.
    if (subject.kind !== 'directory' && rules.ignores(plain)) return reason
  }
  return bareRepository(subject, plain)
}

/** git takes a directory with HEAD, objects and refs for a repository and obeys the config in it. */
function bareRepository({ path: at, exists }: FlagSubject, plain: string): string | undefined {
  const folder = path.posix.dirname(at)
  const below = (name: string) => (folder === '.' ? name : `${folder}/${name}`)
  const name = path.posix.basename(plain)
  const isPart = ['config', 'head', 'commondir'].includes(name) || /(^|\/)hooks$/.test(foldPath(folder))
  if (!isPart || plain.split('/').includes('.git')) return
  const home = /(^|\/)hooks$/.test(foldPath(folder)) ? path.posix.dirname(folder) : undefined
  const looksBare =
    home === undefined
      ? exists(below('HEAD')) && exists(below('objects'))
      : exists(home === '.' ? 'HEAD' : `${home}/HEAD`)
  return looksBare ? 'its directory looks like a git repository, whose configuration git obeys' : undefined
}

/** Whether a link at `at` with this target leads out of the workspace, by its text. */
export function leadsOutside(at: string, target: string): boolean {
  if (target.startsWith('/')) return true
  const reached = path.posix.normalize(path.posix.join(path.posix.dirname(at), target))
  return reached === '..' || reached.startsWith('../')
}

/** File systems that fold letters or drop characters must not let a path slip past the table. */
function foldPath(text: string): string {
  return text
    .normalize('NFKC')
    .replace(/\p{Default_Ignorable_Code_Point}/gu, '')
    .toLowerCase()
}

/**
 * Whether a changed package.json runs something else than before: its scripts, or what it names for the package
 * manager. Text that is no JSON counts as changed.
 */
export function changesPackageScripts(before: string | undefined, after: string): boolean {
  const kept = (text: string | undefined): string | undefined => {
    if (text === undefined) return '[{},null,null,null,null]'
    try {
      const value: unknown = JSON.parse(text)
      if (typeof value !== 'object' || value === null) return
      const {
        scripts = {},
        packageManager,
        gypfile,
        husky,
        'lint-staged': staged,
      } = value as Record<string, unknown>
      return JSON.stringify([scripts, packageManager ?? null, gypfile ?? null, husky ?? null, staged ?? null])
    } catch {
      return
    }
  }
  const [old, now] = [kept(before), kept(after)]
  return now === undefined || old !== now
}
