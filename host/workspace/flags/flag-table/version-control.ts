/** Version control systems, hooks that run at a commit, and CI systems that run at a push. */
import type { FlagGroup } from './row.ts'

export const versionControl: readonly FlagGroup[] = [
  {
    reason: "git's own configuration, which can name programs that git runs",
    rows: [
      {
        tool: 'git attributes (filters, diff and merge drivers)',
        source: 'https://git-scm.com/docs/gitattributes',
        patterns: ['.gitattributes'],
      },
      { tool: 'git submodules', source: 'https://git-scm.com/docs/gitmodules', patterns: ['.gitmodules'] },
      { tool: 'git', source: 'https://git-scm.com/docs/git-config', patterns: ['.gitconfig'] },
      {
        tool: 'git (where a repository keeps its configuration)',
        source: 'https://git-scm.com/docs/gitrepository-layout',
        patterns: ['commondir', 'gitdir', 'config.worktree'],
      },
      {
        tool: 'git-review',
        source: 'https://docs.opendev.org/opendev/git-review/latest/installation.html',
        patterns: ['.gitreview'],
      },
    ],
  },
  {
    reason: 'another version control system keeps its configuration, hooks or repository here',
    rows: [
      {
        tool: 'Mercurial',
        source: 'https://www.mercurial-scm.org/doc/hgrc.5.html',
        patterns: ['.hg', '.hgsub', '.hgsubstate', '.hgrc'],
      },
      { tool: 'Jujutsu', source: 'https://docs.jj-vcs.dev/latest/config/', patterns: ['.jj'] },
      { tool: 'Sapling', source: 'https://sapling-scm.com/docs/introduction/', patterns: ['.sl'] },
      {
        tool: 'Bazaar, Breezy',
        source: 'https://www.breezy-vcs.org/doc/en/user-reference/configuration-help.html',
        patterns: ['.bzr', '.bzrrules'],
      },
      {
        tool: 'Darcs',
        source: 'https://darcs.net/manual/Configuring_darcs.html',
        patterns: ['_darcs', '.darcs'],
      },
      {
        tool: 'Fossil',
        source: 'https://fossil-scm.org/home/doc/trunk/www/settings.wiki',
        patterns: ['.fossil-settings', '_fossil_', '.fslckout', '.fos'],
      },
      { tool: 'Pijul', source: 'https://pijul.org/manual/configuration.html', patterns: ['.pijul'] },
      {
        tool: 'Subversion',
        source: 'https://svnbook.red-bean.com/en/1.7/svn.developer.insidewc.html',
        patterns: ['.svn'],
      },
      {
        tool: 'CVS',
        source: 'https://www.gnu.org/software/trans-coord/manual/cvs/cvs.html',
        patterns: ['cvs/root', 'cvs/repository'],
      },
      {
        tool: 'Perforce',
        source:
          'https://help.perforce.com/helix-core/server-apps/cmdref/current/Content/CmdRef/P4CONFIG.html',
        patterns: ['.p4config', 'p4config.txt', '.p4enviro'],
      },
      {
        tool: 'repo',
        source: 'https://gerrit.googlesource.com/git-repo/+/HEAD/docs/internal-fs-layout.md',
        patterns: ['.repo'],
      },
    ],
  },
  {
    reason: 'git runs it as a hook',
    rows: [
      {
        tool: 'git hooks',
        source: 'https://git-scm.com/docs/githooks',
        patterns: ['.githooks', '.git-hooks'],
      },
      {
        tool: 'Husky',
        source: 'https://typicode.github.io/husky/get-started.html',
        patterns: ['.husky', '.huskyrc*'],
      },
    ],
  },
  {
    reason: 'hooks that run at a commit',
    rows: [
      {
        tool: 'pre-commit',
        source: 'https://pre-commit.com/#adding-pre-commit-plugins-to-your-project',
        patterns: ['.pre-commit-config.y*ml', '.pre-commit-hooks.y*ml', 'prek.toml'],
      },
      {
        tool: 'Lefthook',
        source: 'https://lefthook.dev/configuration/',
        patterns: [
          'lefthook.*',
          '.lefthook.*',
          'lefthook-local.*',
          '.lefthook-local.*',
          '.lefthook',
          '.lefthook-local',
        ],
      },
      {
        tool: 'lint-staged',
        source: 'https://github.com/lint-staged/lint-staged#configuration',
        patterns: ['.lintstagedrc*', 'lint-staged.config.*', '.nano-staged*', 'nano-staged.*'],
      },
      {
        tool: 'Overcommit',
        source: 'https://github.com/sds/overcommit#configuration',
        patterns: ['.overcommit.yml'],
      },
      {
        tool: 'simple-git-hooks',
        source: 'https://github.com/toplenboren/simple-git-hooks#configuration',
        patterns: ['.simple-git-hooks.*', 'simple-git-hooks.*'],
      },
      {
        tool: 'commitlint',
        source: 'https://commitlint.js.org/reference/configuration.html',
        patterns: ['commitlint.config.*', '.commitlintrc*'],
      },
      {
        tool: 'gitlint',
        source: 'https://jorisroovers.com/gitlint/latest/configuration/',
        patterns: ['.gitlint'],
      },
      {
        tool: 'hk',
        source: 'https://hk.jdx.dev/configuration.html',
        patterns: ['hk.pkl', 'hk.local.pkl', '.hkrc.pkl'],
      },
    ],
  },
  {
    reason: 'a CI system or a bot runs it once it is pushed',
    rows: [
      {
        tool: 'GitHub Actions',
        source: 'https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax',
        patterns: ['.github/workflows', '.github/actions', 'action.yml', 'action.yaml'],
      },
      {
        tool: 'Dependabot',
        source:
          'https://docs.github.com/en/code-security/dependabot/working-with-dependabot/dependabot-options-reference',
        patterns: ['.github/dependabot.y*ml'],
      },
      {
        tool: 'Renovate',
        source: 'https://docs.renovatebot.com/configuration-options/',
        patterns: ['renovate.json*', '.renovaterc*'],
      },
      { tool: 'Danger', source: 'https://danger.systems/guides/dangerfile', patterns: ['Dangerfile*'] },
      {
        tool: 'GitLab',
        source: 'https://docs.gitlab.com/ci/yaml/',
        patterns: ['.gitlab-ci.y*ml', '.gitlab/ci'],
      },
      {
        tool: 'CircleCI',
        source: 'https://circleci.com/docs/configuration-reference/',
        patterns: ['.circleci'],
      },
      {
        tool: 'Travis',
        source: 'https://docs.travis-ci.com/user/customizing-the-build',
        patterns: ['.travis.yml'],
      },
      {
        tool: 'Azure Pipelines',
        source: 'https://learn.microsoft.com/azure/devops/pipelines/yaml-schema/',
        patterns: ['azure-pipelines*.y*ml', '.azure-pipelines', '.vsts-ci.yml'],
      },
      {
        tool: 'Bitbucket Pipelines',
        source:
          'https://support.atlassian.com/bitbucket-cloud/docs/bitbucket-pipelines-configuration-reference/',
        patterns: ['bitbucket-pipelines.yml'],
      },
      {
        tool: 'Jenkins',
        source: 'https://www.jenkins.io/doc/book/pipeline/jenkinsfile/',
        patterns: ['Jenkinsfile*', '.ci'],
      },
      { tool: 'Drone', source: 'https://docs.drone.io/yaml/docker/', patterns: ['.drone.*'] },
      {
        tool: 'Woodpecker',
        source: 'https://woodpecker-ci.org/docs/usage/workflow-syntax',
        patterns: ['.woodpecker', '.woodpecker.y*ml'],
      },
      {
        tool: 'Buildkite',
        source: 'https://buildkite.com/docs/pipelines/configure/defining-steps',
        patterns: ['.buildkite'],
      },
      {
        tool: 'AppVeyor',
        source: 'https://www.appveyor.com/docs/appveyor-yml/',
        patterns: ['appveyor.yml', '.appveyor.yml'],
      },
      {
        tool: 'TeamCity',
        source: 'https://www.jetbrains.com/help/teamcity/kotlin-dsl.html',
        patterns: ['.teamcity'],
      },
      {
        tool: 'Google Cloud Build',
        source: 'https://cloud.google.com/build/docs/build-config-file-schema',
        patterns: ['cloudbuild.y*ml', 'cloudbuild.json'],
      },
      {
        tool: 'AWS CodeBuild, Amplify',
        source: 'https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html',
        patterns: ['buildspec*.y*ml', 'amplify.y*ml'],
      },
      { tool: 'Cirrus', source: 'https://cirrus-ci.org/guide/writing-tasks/', patterns: ['.cirrus.*'] },
      {
        tool: 'Forgejo, Gitea',
        source: 'https://forgejo.org/docs/latest/user/actions/reference/',
        patterns: ['.forgejo', '.gitea'],
      },
      {
        tool: 'Semaphore',
        source: 'https://docs.semaphoreci.com/reference/pipeline-yaml-reference/',
        patterns: ['.semaphore'],
      },
      {
        tool: 'sourcehut',
        source: 'https://man.sr.ht/builds.sr.ht/manifest.md',
        patterns: ['.build.yml', '.builds'],
      },
      {
        tool: 'Codemagic',
        source: 'https://docs.codemagic.io/yaml-basic-configuration/yaml-getting-started/',
        patterns: ['codemagic.yaml'],
      },
      {
        tool: 'Bitrise',
        source: 'https://docs.bitrise.io/en/bitrise-ci/references/configuration-yaml-reference',
        patterns: ['bitrise.yml'],
      },
      {
        tool: 'Zuul',
        source: 'https://zuul-ci.org/docs/zuul/latest/project-config.html',
        patterns: ['.zuul.yaml', '.zuul.d', 'zuul.yaml', 'zuul.d'],
      },
      {
        tool: 'Tekton',
        source: 'https://pipelinesascode.com/docs/guide/authoringprs/',
        patterns: ['.tekton'],
      },
      {
        tool: 'Netlify',
        source: 'https://docs.netlify.com/build/configure-builds/file-based-configuration/',
        patterns: ['netlify.toml'],
      },
      {
        tool: 'Vercel',
        source: 'https://vercel.com/docs/project-configuration',
        patterns: ['vercel.json', 'vercel.ts', 'vercel.mts', 'vercel.js', 'vercel.mjs', 'vercel.cjs'],
      },
      { tool: 'Render', source: 'https://render.com/docs/blueprint-spec', patterns: ['render.yaml'] },
      {
        tool: 'Read the Docs',
        source: 'https://docs.readthedocs.com/platform/stable/config-file/v2.html',
        patterns: ['.readthedocs.y*ml'],
      },
    ],
  },
]
