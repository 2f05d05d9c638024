/** Shells, environment managers and interpreters: what they read at start, or when a directory is entered. */
import type { FlagGroup } from './row.ts'

export const shells: readonly FlagGroup[] = [
  {
    reason: 'a shell runs it at its start, or when the directory is entered',
    rows: [
      {
        tool: 'Bash',
        source: 'https://www.gnu.org/software/bash/manual/html_node/Bash-Startup-Files.html',
        patterns: [
          '.bashrc',
          '.bash_profile',
          '.bash_login',
          '.bash_logout',
          '.bash_aliases',
          '.profile',
          '.inputrc',
        ],
      },
      {
        tool: 'Zsh',
        source: 'https://zsh.sourceforge.io/Doc/Release/Files.html',
        patterns: ['.zshrc', '.zshenv', '.zprofile', '.zlogin', '.zlogout'],
      },
      {
        tool: 'tcsh',
        source: 'https://man.freebsd.org/cgi/man.cgi?query=tcsh',
        patterns: ['.cshrc', '.tcshrc', '.login', '.logout'],
      },
      { tool: 'ksh', source: 'https://man.openbsd.org/ksh.1', patterns: ['.kshrc', '.mkshrc'] },
      { tool: 'Xonsh', source: 'https://xon.sh/xonshrc.html', patterns: ['.xonshrc'] },
      {
        tool: 'PowerShell',
        source:
          'https://learn.microsoft.com/powershell/module/microsoft.powershell.core/about/about_profiles',
        patterns: ['profile.ps1', 'microsoft.powershell_profile.ps1'],
      },
      {
        tool: 'direnv',
        source: 'https://direnv.net/man/direnv.1.html',
        patterns: ['.envrc', '.envrc.*', '.direnvrc', '.direnv'],
      },
      {
        tool: 'dotenv loaders of shells',
        source: 'https://github.com/ohmyzsh/ohmyzsh/blob/master/plugins/dotenv/README.md',
        patterns: ['.env', '.env.*'],
      },
      { tool: 'autoenv', source: 'https://github.com/hyperupcall/autoenv', patterns: ['.autoenv*'] },
      {
        tool: 'smartcd',
        source: 'https://github.com/cxreg/smartcd',
        patterns: ['.bash_enter', '.bash_leave'],
      },
      { tool: 'Shadowenv', source: 'https://shopify.github.io/shadowenv/', patterns: ['.shadowenv.d'] },
      {
        tool: 'mise',
        source: 'https://mise.jdx.dev/configuration.html',
        patterns: [
          'mise.toml',
          'mise.*.toml',
          '.mise.toml',
          '.mise.*.toml',
          '.mise',
          '.miserc.toml',
          'mise/config*.toml',
          'mise/conf.d',
          'mise/tasks',
          'mise-tasks',
          '.mise-tasks',
          'mise.lock',
        ],
      },
      {
        tool: 'asdf',
        source: 'https://asdf-vm.com/manage/configuration.html',
        patterns: ['.tool-versions', '.asdfrc'],
      },
      { tool: 'proto', source: 'https://moonrepo.dev/docs/proto/config', patterns: ['.prototools*'] },
      {
        tool: 'aqua',
        source: 'https://aquaproj.github.io/docs/reference/config/',
        patterns: ['aqua.y*ml', '.aqua.y*ml'],
      },
      {
        tool: 'Hermit',
        source: 'https://cashapp.github.io/hermit/usage/shell/',
        patterns: ['bin/hermit*', 'bin/activate-hermit*', 'bin/.*.pkg'],
      },
      {
        tool: 'devenv',
        source: 'https://devenv.sh/automatic-shell-activation/',
        patterns: ['devenv.nix', 'devenv.yaml', 'devenv.lock', 'devenv.local.*', '.devenv*'],
      },
      {
        tool: 'Devbox',
        source: 'https://www.jetify.com/docs/devbox/configuration/',
        patterns: ['devbox.json', 'devbox.lock', '.devbox'],
      },
      { tool: 'Flox', source: 'https://flox.dev/docs/concepts/activation/', patterns: ['.flox'] },
      {
        tool: 'Pixi',
        source: 'https://pixi.sh/latest/reference/pixi_manifest/#the-activation-table',
        patterns: ['pixi.toml', '.pixi'],
      },
      {
        tool: 'Nix',
        source: 'https://nix.dev/manual/nix/stable/command-ref/new-cli/nix3-flake.html',
        patterns: ['flake.nix', 'flake.lock', 'shell.nix', 'default.nix'],
      },
      {
        tool: 'Guix',
        source: 'https://guix.gnu.org/manual/en/html_node/Invoking-guix-shell.html',
        patterns: ['guix.scm', 'manifest.scm'],
      },
    ],
  },
  {
    reason: 'a program of the desktop or the home directory obeys it where it lies there',
    rows: [
      {
        tool: 'programs by the XDG rules',
        source: 'https://specifications.freedesktop.org/basedir-spec/latest/',
        patterns: ['.config', '.local'],
      },
      {
        tool: 'X sessions',
        source: 'https://www.x.org/releases/current/doc/man/man1/xinit.1.xhtml',
        patterns: ['.xprofile', '.xinitrc', '.xserverrc', '.xsession', '.xsessionrc'],
      },
      { tool: 'OpenSSH', source: 'https://man.openbsd.org/ssh_config', patterns: ['.ssh'] },
      {
        tool: 'tmux',
        source: 'https://man.openbsd.org/tmux.1',
        patterns: ['.tmux.conf', '.tmux', '.tmuxinator*'],
      },
      {
        tool: 'GNU Screen',
        source: 'https://www.gnu.org/software/screen/manual/screen.html',
        patterns: ['.screenrc'],
      },
      {
        tool: 'less',
        source: 'https://man7.org/linux/man-pages/man1/less.1.html',
        patterns: ['.lesskey', '.lessfilter', '.lesshst'],
      },
      {
        tool: 'curl, wget',
        source: 'https://curl.se/docs/manpage.html',
        patterns: ['.curlrc', '.wgetrc', '.netrc'],
      },
      {
        tool: 'ack, ripgrep',
        source: 'https://beyondgrep.com/documentation/',
        patterns: ['.ackrc', '.ripgreprc'],
      },
      {
        tool: 'psql',
        source: 'https://www.postgresql.org/docs/current/app-psql.html',
        patterns: ['.psqlrc*'],
      },
      { tool: 'sqlite3', source: 'https://sqlite.org/cli.html', patterns: ['.sqliterc'] },
      {
        tool: 'MySQL clients',
        source: 'https://dev.mysql.com/doc/refman/8.4/en/option-files.html',
        patterns: ['.my.cnf', '.mylogin.cnf'],
      },
      {
        tool: 'mail delivery and readers',
        source: 'https://www.postfix.org/local.8.html',
        patterns: ['.forward', '.procmailrc', '.mailcap', '.mailrc', '.muttrc'],
      },
      {
        tool: 'Terraform',
        source: 'https://developer.hashicorp.com/terraform/cli/config/config-file',
        patterns: ['.terraformrc', 'terraform.rc', '.terraform', '.terraform.lock.hcl', '.tofurc', 'tofu.rc'],
      },
      {
        tool: 'kubectl',
        source:
          'https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins',
        patterns: ['.kube'],
      },
      {
        tool: 'AWS',
        source: 'https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-sourcing-external.html',
        patterns: ['.aws/config', '.aws/credentials', '.aws/cli'],
      },
      {
        tool: 'Docker',
        source: 'https://docs.docker.com/reference/cli/docker/login/',
        patterns: ['.docker/config.json', '.docker/cli-plugins'],
      },
      {
        tool: 'GnuPG',
        source: 'https://www.gnupg.org/documentation/manuals/gnupg/Agent-Options.html',
        patterns: ['.gnupg'],
      },
    ],
  },
  {
    reason: 'an interpreter, debugger or server runs it when it starts here',
    rows: [
      {
        tool: 'R',
        source: 'https://stat.ethz.ch/R-manual/R-devel/library/base/html/Startup.html',
        patterns: ['.Rprofile', '.Renviron', 'renv/activate.R'],
      },
      {
        tool: 'GDB',
        source: 'https://sourceware.org/gdb/current/onlinedocs/gdb.html/Auto_002dloading.html',
        patterns: ['.gdbinit', '.gdbearlyinit', '*-gdb.py', '*-gdb.gdb', '*-gdb.scm'],
      },
      { tool: 'LLDB', source: 'https://lldb.llvm.org/man/lldb.html', patterns: ['.lldbinit*'] },
      {
        tool: 'Python',
        source: 'https://docs.python.org/3/library/site.html',
        patterns: [
          'sitecustomize.py',
          'usercustomize.py',
          '*.pth',
          'pyvenv.cfg',
          '.pythonstartup',
          '.pythonrc*',
          '.pdbrc*',
        ],
      },
      {
        tool: 'IPython, Jupyter',
        source: 'https://docs.jupyter.org/en/latest/use/jupyter-directories.html',
        patterns: [
          'ipython_config.py',
          'ipython_kernel_config.py',
          'jupyter_*config.py',
          'jupyter_*config.json',
          '.ipython',
          '.jupyter',
        ],
      },
      {
        tool: 'Ruby',
        source: 'https://docs.ruby-lang.org/en/master/IRB.html',
        patterns: ['.irbrc', '_irbrc', '.pryrc', '.rspec', '.byebugrc', '.rdbgrc*'],
      },
      {
        tool: 'GHCi',
        source: 'https://downloads.haskell.org/ghc/latest/docs/users_guide/ghci.html',
        patterns: ['.ghci'],
      },
      { tool: 'OCaml', source: 'https://ocaml.org/manual/toplevel.html', patterns: ['.ocamlinit'] },
      { tool: 'Elixir', source: 'https://hexdocs.pm/iex/IEx.html', patterns: ['.iex.exs'] },
      {
        tool: 'Erlang',
        source: 'https://www.erlang.org/doc/apps/erts/erl_cmd.html',
        patterns: ['.erlang', '.erlang.*'],
      },
      { tool: 'Perl', source: 'https://perldoc.perl.org/perldebug', patterns: ['.perldb', 'perldb.ini'] },
      {
        tool: 'Octave, MATLAB',
        source: 'https://docs.octave.org/latest/Startup-Files.html',
        patterns: ['.octaverc', 'startup.m'],
      },
      {
        tool: 'Clojure',
        source: 'https://clojure.org/reference/repl_and_main',
        patterns: ['user.clj', '.nrepl.edn'],
      },
      {
        tool: 'PHP',
        source: 'https://www.php.net/manual/en/configuration.file.per-user.php',
        patterns: ['.user.ini', 'php.ini'],
      },
      {
        tool: 'Apache',
        source: 'https://httpd.apache.org/docs/current/howto/htaccess.html',
        patterns: ['.htaccess'],
      },
      {
        tool: 'JVM launchers',
        source: 'https://www.scala-sbt.org/1.x/docs/Command-Line-Reference.html',
        patterns: ['.sbtopts', '.jvmopts', '.jvmopts-*'],
      },
    ],
  },
  {
    reason: 'compiled code that an interpreter runs in the place of the source beside it',
    rows: [
      {
        tool: 'Python',
        source: 'https://docs.python.org/3/reference/import.html#cached-bytecode-invalidation',
        patterns: ['*.pyc', '*.pyo'],
      },
      { tool: 'Perl', source: 'https://perldoc.perl.org/functions/require', patterns: ['*.pmc'] },
      {
        tool: 'Zsh',
        source: 'https://zsh.sourceforge.io/Doc/Release/Shell-Builtin-Commands.html',
        patterns: ['*.zwc'],
      },
      {
        tool: 'Emacs',
        source: 'https://www.gnu.org/software/emacs/manual/html_node/elisp/How-Programs-Do-Loading.html',
        patterns: ['*.elc', '*.eln'],
      },
    ],
  },
]
