/** Linters, formatters and test extensions that editors run when a file is opened or saved. */
import type { FlagGroup } from './row.ts'

export const linters: readonly FlagGroup[] = [
  {
    reason: 'a linter, formatter or test extension loads code from it when a file is opened or saved',
    rows: [
      {
        tool: 'ESLint',
        source: 'https://eslint.org/docs/latest/use/configure/configuration-files',
        patterns: ['.eslintrc*', 'eslint.config.*'],
      },
      {
        tool: 'TSLint',
        source: 'https://palantir.github.io/tslint/usage/configuration/',
        patterns: ['tslint.json', 'tslint.y*ml'],
      },
      {
        tool: 'Oxlint',
        source: 'https://oxc.rs/docs/guide/usage/linter/config.html',
        patterns: ['.oxlintrc.json*', 'oxlint.config.*'],
      },
      {
        tool: 'Prettier',
        source: 'https://prettier.io/docs/configuration',
        patterns: ['.prettierrc*', 'prettier.config.*'],
      },
      {
        tool: 'Stylelint',
        source: 'https://stylelint.io/user-guide/configure',
        patterns: ['.stylelintrc*', 'stylelint.config.*'],
      },
      {
        tool: 'ember-template-lint',
        source: 'https://github.com/ember-template-lint/ember-template-lint/blob/main/docs/configuration.md',
        patterns: ['.template-lintrc*'],
      },
      { tool: 'html-validate', source: 'https://html-validate.org/usage/', patterns: ['.htmlvalidate.*'] },
      {
        tool: 'Babel',
        source: 'https://babeljs.io/docs/config-files',
        patterns: ['.babelrc*', 'babel.config.json'],
      },
      {
        tool: 'extensions that load JavaScript configuration (Vitest, Jest, Playwright, Tailwind CSS, Svelte, Astro, GraphQL, …)',
        source: 'https://vitest.dev/guide/ide',
        patterns: [
          '*.config.js',
          '*.config.cjs',
          '*.config.mjs',
          '*.config.ts',
          '*.config.cts',
          '*.config.mts',
          '*.workspace.js',
          '*.workspace.ts',
          '*.workspace.mjs',
          '*.workspace.mts',
          'karma.conf.*',
          'wdio.conf.*',
          '.postcssrc*',
        ],
      },
      { tool: 'Mocha', source: 'https://mochajs.org/running/configuring/', patterns: ['.mocharc*'] },
      {
        tool: 'GraphQL',
        source: 'https://the-guild.dev/graphql/config/docs/user/usage',
        patterns: ['.graphqlrc*', 'graphql.config.*'],
      },
      {
        tool: 'markdownlint',
        source: 'https://github.com/DavidAnson/markdownlint-cli2#configuration',
        patterns: ['.markdownlint*'],
      },
      {
        tool: 'remark',
        source: 'https://github.com/unifiedjs/unified-engine#config-files',
        patterns: ['.remarkrc*'],
      },
      { tool: 'textlint', source: 'https://textlint.org/docs/configuring/', patterns: ['.textlintrc*'] },
      {
        tool: 'CSpell',
        source: 'https://cspell.org/docs/Configuration',
        patterns: ['cspell*.y*ml', '.cspell*', 'cspell*.json*', 'cspell*.toml'],
      },
      { tool: 'dprint', source: 'https://dprint.dev/config/', patterns: ['dprint.json*', '.dprint.json*'] },
      {
        tool: 'Trunk, Qlty',
        source: 'https://docs.trunk.io/code-quality/overview/getting-started/configuration',
        patterns: ['.trunk', '.qlty'],
      },
      {
        tool: 'Luacheck',
        source: 'https://luacheck.readthedocs.io/en/stable/config.html',
        patterns: ['.luacheckrc'],
      },
      {
        tool: 'golangci-lint',
        source: 'https://golangci-lint.run/docs/plugins/go-plugins/',
        patterns: ['.golangci.*', '.custom-gcl.yml'],
      },
      {
        tool: 'RuboCop, Standard',
        source: 'https://docs.rubocop.org/rubocop/extensions.html',
        patterns: ['.rubocop*', '.standard.yml'],
      },
      {
        tool: 'ERB Lint, HAML-Lint',
        source: 'https://github.com/Shopify/erb_lint',
        patterns: ['.erb_lint.yml', '.erb-lint.yml', '.erb_linters', '.erb-linters', '.haml-lint*'],
      },
      {
        tool: 'Pylint',
        source: 'https://pylint.readthedocs.io/en/stable/user_guide/configuration/all-options.html',
        patterns: ['.pylintrc*', 'pylintrc*'],
      },
      {
        tool: 'mypy',
        source: 'https://mypy.readthedocs.io/en/stable/extending_mypy.html',
        patterns: ['mypy.ini', '.mypy.ini'],
      },
      {
        tool: 'Flake8',
        source: 'https://flake8.pycqa.org/en/latest/user/configuration.html#using-local-plugins',
        patterns: ['.flake8'],
      },
      {
        tool: 'Python tools in common files (pytest, Pylint, mypy, setuptools)',
        source: 'https://docs.pytest.org/en/stable/reference/customize.html',
        patterns: [
          'pyproject.toml',
          'setup.cfg',
          'pytest.ini',
          'pytest.toml',
          '.pytest.ini',
          '.pytest.toml',
          'conftest.py',
          'tox.ini',
        ],
      },
      {
        tool: 'SQLFluff',
        source: 'https://docs.sqlfluff.com/en/stable/configuration/templating/jinja.html',
        patterns: ['.sqlfluff'],
      },
      {
        tool: 'Ansible',
        source: 'https://docs.ansible.com/ansible/latest/reference_appendices/config.html',
        patterns: ['ansible.cfg', '.ansible', '.ansible-lint*'],
      },
      {
        tool: 'TFLint',
        source: 'https://github.com/terraform-linters/tflint/blob/master/docs/user-guide/plugins.md',
        patterns: ['.tflint.hcl', '.tflint.d'],
      },
      {
        tool: 'PHPStan, Psalm',
        source: 'https://phpstan.org/config-reference#bootstrap',
        patterns: ['phpstan*.neon*', '.phpstan*.neon*', 'psalm*.xml*'],
      },
      {
        tool: 'PHP-CS-Fixer, PHP_CodeSniffer',
        source: 'https://cs.symfony.com/doc/config.html',
        patterns: ['.php-cs-fixer*', '.php_cs*', 'phpcs.xml*', '.phpcs.xml*', 'ecs.php'],
      },
      {
        tool: 'languageserver for R (lintr)',
        source: 'https://lintr.r-lib.org/articles/lintr.html',
        patterns: ['.lintr'],
      },
      {
        tool: 'PSScriptAnalyzer',
        source:
          'https://learn.microsoft.com/powershell/utility-modules/psscriptanalyzer/using-scriptanalyzer',
        patterns: ['psscriptanalyzersettings.psd1'],
      },
      {
        tool: 'latexmk, which editors run on save',
        source: 'https://ctan.org/pkg/latexmk',
        patterns: ['latexmkrc', '.latexmkrc'],
      },
    ],
  },
]
