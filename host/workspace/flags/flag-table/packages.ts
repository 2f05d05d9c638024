/** Package managers, task runners and build tools: what common commands run, and what they install. */
import type { FlagGroup } from './row.ts'

export const packages: readonly FlagGroup[] = [
  {
    reason: 'commands and code of installed packages, which editors and shells use before others',
    followsLinks: false,
    rows: [
      {
        tool: 'npm and its kin',
        source: 'https://docs.npmjs.com/cli/configuring-npm/folders',
        patterns: ['node_modules', 'bower_components', 'jspm_packages'],
      },
      {
        tool: 'Python environments',
        source: 'https://docs.python.org/3/library/venv.html',
        patterns: [
          '.venv',
          'venv',
          'env/bin',
          'env/lib',
          'virtualenv',
          'site-packages',
          '__pypackages__',
          '.tox',
          '.nox',
          '.eggs',
        ],
      },
    ],
  },
  {
    reason: 'a package manager obeys it',
    rows: [
      { tool: 'npm', source: 'https://docs.npmjs.com/cli/configuring-npm/npmrc', patterns: ['.npmrc'] },
      {
        tool: 'Yarn',
        source: 'https://yarnpkg.com/configuration/yarnrc',
        patterns: ['.yarnrc', '.yarnrc.yml', '.yarn', '.pnp.*', 'yarn.config.*'],
      },
      {
        tool: 'pnpm',
        source: 'https://pnpm.io/pnpmfile',
        patterns: ['.pnpmfile.*', 'pnpmfile.*', 'pnpm-workspace.yaml', 'package.json5'],
      },
      {
        tool: 'Bun',
        source: 'https://bun.com/docs/runtime/bunfig',
        patterns: ['bunfig.toml', '.bunfig.toml', 'bun.lockb'],
      },
      {
        tool: 'Rush',
        source: 'https://rushjs.io/pages/configs/rush_json/',
        patterns: ['rush.json', 'common/config/rush', 'common/autoinstallers', 'common/git-hooks'],
      },
      {
        tool: 'pip',
        source: 'https://pip.pypa.io/en/stable/topics/configuration/',
        patterns: ['pip.conf', 'pip.ini', '.pypirc'],
      },
      { tool: 'uv', source: 'https://docs.astral.sh/uv/reference/settings/', patterns: ['uv.toml'] },
      {
        tool: 'Poetry, PDM',
        source: 'https://python-poetry.org/docs/configuration/',
        patterns: ['poetry.toml', 'pdm.toml', '.pdm.toml'],
      },
      {
        tool: 'Conda',
        source: 'https://docs.conda.io/projects/conda/en/latest/user-guide/configuration/index.html',
        patterns: ['.condarc'],
      },
      {
        tool: 'NuGet',
        source: 'https://learn.microsoft.com/nuget/reference/nuget-config-file',
        patterns: ['nuget.config'],
      },
      {
        tool: 'Composer',
        source: 'https://getcomposer.org/doc/articles/scripts.md',
        patterns: ['composer.json'],
      },
      {
        tool: 'Bazel',
        source: 'https://bazel.build/run/bazelrc',
        patterns: [
          '.bazelrc',
          '.bazelversion',
          '.bazeliskrc',
          'tools/bazel',
          'tools/bazel.*',
          '.bazelproject',
        ],
      },
      {
        tool: 'Buck2',
        source: 'https://buck2.build/docs/concepts/buckconfig/',
        patterns: ['.buckconfig*', '.buckroot'],
      },
    ],
  },
  {
    reason: 'a build or start command runs it',
    rows: [
      { tool: 'just', source: 'https://just.systems/man/en/', patterns: ['justfile', '.justfile', '*.just'] },
      {
        tool: 'Task',
        source: 'https://taskfile.dev/docs/guide',
        patterns: ['Taskfile*.y*ml', '.taskrc.y*ml'],
      },
      { tool: 'Rake', source: 'https://ruby.github.io/rake/', patterns: ['Rakefile*', 'Guardfile'] },
      {
        tool: 'Grunt, gulp',
        source: 'https://code.visualstudio.com/docs/debugtest/tasks#_task-autodetection',
        patterns: ['Gruntfile.*', 'gulpfile.*', 'Jakefile*'],
      },
      {
        tool: 'setuptools',
        source: 'https://setuptools.pypa.io/en/latest/userguide/quickstart.html',
        patterns: ['setup.py'],
      },
      { tool: 'Nox', source: 'https://nox.thea.codes/en/stable/config.html', patterns: ['noxfile.py'] },
      { tool: 'node-gyp', source: 'https://docs.npmjs.com/cli/using-npm/scripts', patterns: ['binding.gyp'] },
      {
        tool: 'Docker, Podman',
        source: 'https://docs.docker.com/reference/dockerfile/',
        patterns: ['Dockerfile*', '*.dockerfile', 'Containerfile*'],
      },
      {
        tool: 'Docker Compose',
        source: 'https://docs.docker.com/compose/how-tos/multiple-compose-files/merge/',
        patterns: ['docker-compose*.y*ml', 'compose*.y*ml'],
      },
      {
        tool: 'Vagrant',
        source: 'https://developer.hashicorp.com/vagrant/docs/vagrantfile',
        patterns: ['Vagrantfile'],
      },
      { tool: 'Foreman', source: 'https://ddollar.github.io/foreman/', patterns: ['Procfile*', '.foreman'] },
      { tool: 'Tilt', source: 'https://docs.tilt.dev/api.html', patterns: ['Tiltfile'] },
      {
        tool: 'Turborepo, Lerna',
        source: 'https://turborepo.com/docs/reference/configuration',
        patterns: ['turbo.json*', 'lerna.json'],
      },
      { tool: 'Ant', source: 'https://ant.apache.org/manual/using.html', patterns: ['build.xml'] },
    ],
  },
]
