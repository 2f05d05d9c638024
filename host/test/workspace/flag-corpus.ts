/**
 * What becomes of paths that hostile models wrote, and of those that public lists of such places name: each is flagged,
 * or is not for the reason that it stands under. Separated by spaces.
 */

export const flaggedPaths = `
  .Renviron .Rprofile .ackrc .agents/skills/x/SKILL.md .aider.conf.yml .aiderignore .amazonq
  .amazonq/rules/x.md .aqua.yaml .asdfrc .augment .augment/rules/x.md .aws/config .babelrc .babelrc.js
  .bashrc .bazelrc .bazelversion .buckconfig .buildkite/pipeline.yml .builds/x .builds/x.yml
  .bzr/branch/branch.conf .caisson/skills/x/SKILL.md .caissonignore .cargo/config .cargo/config.toml
  .ci/run .circleci/config.yml .cirrus.yml .clangd .classpath .claude/agents/x.md .claude/settings.json
  .claude/settings.local.json .claude/skills/x/SKILL.md .clinerules .codex/config.toml
  .config/Code/User/settings.json .config/autostart/x.desktop .config/dotnet-tools.json
  .config/fish/config.fish .config/git/config .config/git/hooks/x .config/mise/config.toml
  .config/nextest.toml .config/nvim/init.lua .continue/config.json .continuerc.json .crush.json .curlrc
  .cursor/mcp.json .cursor/rules/x.mdc .cursorignore .cursorrules .devcontainer.json
  .devcontainer/devcontainer.json .dir-locals.el .direnv/bin/x .docker/config.json .drone.yml .env.local
  .envrc .envrc.ps1 .erb_lint.yml .eslintrc.json .exrc .flake8 .fleet/run.json .flox
  .flox/env/manifest.toml .foreman .forgejo/workflows/x.yml .formatter.exs .fossil-settings/pgp-command
  .gdbearlyinit .gdbinit .gemini/settings.json .ghci .git/config .gitattributes .gitea/workflows/x.yml
  .githooks/pre-commit .github/actions/x/action.yml .github/agents/x.md .github/chatmodes/x.md
  .github/copilot-instructions.md .github/dependabot.yml .github/instructions/x.instructions.md
  .github/instructions/x.md .github/lsp.json .github/prompts/x.md .github/prompts/x.prompt.md
  .github/workflows/ci.yml .gitlab-ci.yml .gitlab/ci/x.yml .gitmodules .gnupg/gpg-agent.conf .golangci.yml
  .goosehints .graphqlrc.js .gvimrc .haml-lint.yml .helix/languages.toml .hg/hgrc .hg/hgrc-not-shared
  .hg/requires .hgsub .hie-bios .hkrc.pkl .htaccess .htmlvalidate.js .husky/pre-commit
  .idea/runConfigurations/x.xml .idea/workspace.xml .iex.exs .irbrc .jj/repo/config.toml .junie
  .junie/guidelines.md .justfile .jvmopts .kilocode .kilocode/rules/x.md .kiro/steering/x.md .kube/config
  .latexmkrc .lazygit.yml .lesskey .lintr .lintstagedrc .lldbinit .local.vimrc .local/bin/git .luarc.json
  .markdownlint-cli2.cjs .markdownlint.cjs .merlin .mill-version .mise.dev.toml .mise/conf.d
  .mise/config.toml .mise/tasks .mise/tasks/build .miserc.toml .mocharc.js .mocharc.yml
  .mvn/extensions.xml .mvn/jvm.config .my.cnf .netrc .npmrc .nvim.lua .opencode/x .pdbrc .php-cs-fixer.php
  .pi/skills/x/SKILL.md .pnpmfile.cjs .postcssrc .pre-commit-config.yaml .prettierrc .profile .project
  .prototools .pryrc .psqlrc .pylintrc .pyre_configuration .pyre_configuration.local
  .qoder/skills/x/SKILL.md .remarkrc.js .ripgreprc .roo/rules/x.md .roomodes .roorules .roox .rspec
  .rubocop.yml .rules .sbtopts .screenrc .settings/x .settings/x.prefs .sl/config .solargraph.yml
  .sqliterc .ssh/authorized_keys .stylelintrc .taskrc.yml .teamcity/settings.kts .template-lintrc.js
  .terraform.lock.hcl .terraformrc .theia/settings.json .tmux.conf .tofurc .tool-versions .trae
  .trae/rules/x.md .travis.yml .trunk/trunk.yaml .user.ini .venv/bin/python
  .venv/lib/python3.11/site-packages/x.py .venv/pyvenv.cfg .vim/ftplugin/x.vim .vimrc
  .vscode/extensions.json .vscode/launch.json .vscode/mcp.json .vscode/settings.json .vscode/tasks.json
  .wgetrc .windsurf/rules/x.md .windsurfrules .woodpecker.yml .yardopts .yarnrc .yarnrc.yml
  .zed/settings.json .zencoder/rules/x.md .zshrc AGENTS.local.md AGENTS.md AGENTS.override.md
  CLAUDE.local.md CLAUDE.md CMakeLists.txt CMakePresets.json CMakeSettings.json Cargo.toml
  CppProperties.json Dangerfile Directory.Build.props Directory.Packages.props Dockerfile GEMINI.md
  GNUmakefile Gemfile Gruntfile.js Guardfile Jenkinsfile Justfile Makefile Makefile.am Makefile.toml
  Package.swift Procfile QWEN.md Rakefile Scarb.toml Setup.hs Taskfile.dist.yaml Taskfile.yml Tiltfile
  Vagrantfile WARP.md _darcs/prefs/defaults action.yml ansible.cfg appveyor.yml aqua.yaml astro.config.mjs
  ava.config.js azure-pipelines.yml babel.config.js babel.config.json bin/activate-hermit bin/hermit.hcl
  bitbucket-pipelines.yml bitrise.yml bsconfig.json build.gradle.kts build.mill build.rs build.sbt
  build.sc build.xml build.zig buildServer.json buildSrc/src/main/java/X.java buildSrc/x buildspec.yml
  bunfig.toml cabal.project cloudbuild.yaml codemagic.yaml commitlint.config.js
  common/config/rush/pnpmfile.cjs compile_commands.json compose.override.yml compose.yaml composer.json
  config.nims conftest.py crates/x/build.rs crush.json crushrc cspell.jsonc cypress.config.ts default.nix
  deno.json deno.jsonc dev.Dockerfile devbox.json devenv.nix devenv.yaml docker-compose.yml dune
  dune-project env/bin env/bin/activate esbuild.config.js eslint.config.js flake.lock flake.nix
  global.json gradle.properties gradle/libs.versions.toml gradle/wrapper/gradle-wrapper.properties gradlew
  gulpfile.js hardhat.config.js hie.yaml hk.local.pkl init.gradle ipython_config.py jest.config.js
  jsconfig.json jupyter_notebook_config.py jupyter_server_config.py justfile karma.conf.js kilo.json
  lakefile.lean latexmkrc lean-toolchain lefthook.yml lerna.json makefile mcp.json meson.build
  metro.config.js mise-tasks/build mise.dev.toml mise.local.toml mise.toml mise/tasks/build mix.exs mvnw
  mypy.ini nbproject/project.xml netlify.toml next.config.js node_modules/.bin/tsc
  node_modules/.package-lock.json node_modules/eslint/lib/api.js node_modules/typescript/lib/tsserver.js
  noxfile.py nuget.config nuxt.config.ts nx.json opencode.json opencode.jsonc pdm.toml phpstan.neon
  pip.conf pixi.toml playwright.config.ts pnpm-workspace.yaml poetry.toml pom.xml postcss.config.js
  prettier.config.mjs project.json project/build.properties project/plugins.sbt pylintrc pyproject.toml
  pyrefly.toml pytest.ini rebar.config release.config.js remix.config.js render.yaml renovate.json
  renv/activate.R rescript.json rollup.config.mjs rspack.config.js rush.json rust-toolchain.toml
  settings.gradle setup.cfg setup.py shell.nix sitecustomize.py stack.yaml sub/AGENTS.md svelte.config.js
  tailwind.config.js tests/conftest.py tools/bazel tox.ini tsconfig.app.json tsconfig.json tslint.json
  tsup.config.ts tui.json turbo.json usercustomize.py uv.toml venv/bin/activate vercel.json vercel.ts
  vite.config.ts vitest.config.ts vitest.workspace.ts vue.config.js wdio.conf.js webpack.config.js
  x-gdb.py x.cmake x.code-workspace x.csproj x.csproj.user x.gemspec x.just x.mk x.nimble x.pro.shared
  x.pth x.sln x.sublime-project x.xcodeproj/project.pbxproj xmake.lua zls.build.json
`

/** By why they are not flagged. */
export const harmlessPaths: Readonly<Record<string, string>> = {
  'runs nothing: it holds settings of looks, versions or names': `
    .DS_Store .clang-format .clang-tidy .directory .editorconfig .hgignore .hlint.yaml .perltidyrc
    .scalafmt.conf .shellcheckrc .swcrc .swiftlint.yml .watchmanconfig clippy.toml rustfmt.toml ruff.toml
    desktop.ini .github/CODEOWNERS
  `,
  'asks for versions of a tool, or of packages that a person then installs': `
    .java-version .node-version .nvmrc .python-version .ruby-version .sdkmanrc go.mod go.sum go.work
    pubspec.yaml
  `,
  'is read by a command that a person gives to build, test, release or deploy': `
    .air.toml .coveragerc .czrc .dockerignore .gn .goreleaser.yaml .ncurc.js .nycrc .proverc .release-it.json
    .releaserc.js .storybook/main.js .versionrc.js BUILD BUILD.bazel MODULE.bazel WORKSPACE Brewfile Capfile
    Cross.toml Earthfile Pipfile Podfile Pulumi.yaml SConstruct angular.json app.json build.ninja cdk.json
    codegen.ts config.ru configure configure.ac constraints.txt docker-bake.hcl dodo.py environment.yml
    fabfile.py fastlane/Fastfile fly.toml foundry.toml hatch.toml hatch_build.py helmfile.yaml
    kustomization.yaml magefile.go main.tf manage.py pants.toml phpunit.xml premake5.lua rector.php
    requirements.txt samconfig.toml serverless.yml skaffold.yaml tasks.py terragrunt.hcl tools.go
    truffle-config.js wrangler.toml wscript x.podspec x.gn
  `,
  'is code or a document like any other': `
    CONVENTIONS.md artisan bin/git bin/rails ci/pipeline.yml gh json.py jest.setup.js scripts/test.sh x.ipynb
    index.html README.md src/app.js
  `,
  'is not read at such a place': `
    Startup.jl cargo/config.toml devcontainer.json skills/x/SKILL.md
  `,
  'names only what the program imports when it is started': `
    import_map.json
  `,
  'needs a click of the person, or a system that is not supported': `
    autorun.inf x.desktop x.lnk
  `,
}
