/** Editors, and the environments in which they open a folder. */
import type { FlagGroup } from './row.ts'

export const editors: readonly FlagGroup[] = [
  {
    reason: 'an editor runs tasks or code from it',
    rows: [
      {
        tool: 'VS Code',
        source: 'https://code.visualstudio.com/docs/editing/workspaces/workspace-trust',
        patterns: ['.vscode', '*.code-workspace'],
      },
      { tool: 'Theia', source: 'https://theia-ide.org/docs/workspace_trust/', patterns: ['.theia'] },
      {
        tool: 'Visual Studio',
        source:
          'https://learn.microsoft.com/visualstudio/ide/customize-build-and-debug-tasks-in-visual-studio',
        patterns: ['.vs', 'CMakeSettings.json', 'CppProperties.json'],
      },
      {
        tool: 'JetBrains IDEs',
        source: 'https://www.jetbrains.com/help/idea/project-security.html',
        patterns: ['.idea', '.fleet', '.run', '*.iml', '*.ipr', '*.iws'],
      },
      {
        tool: 'Eclipse',
        source:
          'https://help.eclipse.org/latest/topic/org.eclipse.platform.doc.user/concepts/concepts-exttools.htm',
        patterns: [
          '.project',
          '.classpath',
          '.factorypath',
          '.settings',
          '.externaltoolbuilders',
          '*.launch',
        ],
      },
      // unverified
      {
        tool: 'NetBeans',
        source: 'https://netbeans.apache.org/front/main/wiki/FaqProjectMakeMakeFromExisting/',
        patterns: ['nbproject'],
      },
      {
        tool: 'Xcode',
        source: 'https://developer.apple.com/documentation/xcode/running-custom-scripts-during-a-build',
        patterns: ['*.xcodeproj', '*.xcworkspace'],
      },
      { tool: 'Zed', source: 'https://zed.dev/docs/worktree-trust', patterns: ['.zed'] },
      {
        tool: 'Helix',
        source: 'https://docs.helix-editor.com/master/workspace-trust.html',
        patterns: ['.helix'],
      },
      {
        tool: 'Vim',
        source: 'https://vimhelp.org/options.txt.html#%27exrc%27',
        patterns: [
          '.exrc',
          '_exrc',
          '.vimrc',
          '_vimrc',
          '.vim',
          '.lvimrc',
          '.local.vimrc',
          '.vimspector.json',
          '.vimrc.*',
          '.gvimrc',
          '_gvimrc',
        ],
      },
      {
        tool: 'Neovim',
        source: 'https://neovim.io/doc/user/options.html#%27exrc%27',
        patterns: ['.nvimrc', '.nvim.lua', '.nvim', '.lazy.lua', '.neoconf.json', '.nlsp-settings'],
      },
      {
        tool: 'YouCompleteMe',
        source: 'https://github.com/ycm-core/YouCompleteMe#the-gycm_extra_conf_globlist-option',
        patterns: ['.ycm_extra_conf.py'],
      },
      {
        tool: 'Emacs',
        source: 'https://www.gnu.org/software/emacs/manual/html_node/emacs/Directory-Variables.html',
        patterns: ['.dir-locals*.el', '.emacs', '.emacs.*', '.emacs.d', '_dir-locals*.el'],
      },
      {
        tool: 'Sublime Text',
        source: 'https://www.sublimetext.com/docs/projects.html',
        patterns: ['*.sublime-project', '*.sublime-workspace', '*.sublime-settings', '*.sublime-build'],
      },
      {
        tool: 'Kate',
        source: 'https://docs.kde.org/stable5/en/kate/kate/kate-application-plugin-projects.html',
        patterns: ['.kateproject*', '.kateconfig'],
      },
      {
        tool: 'TextMate',
        source: 'https://macromates.com/blog/2011/git-style-configuration/',
        patterns: ['.tm_properties'],
      },
      { tool: 'Nova', source: 'https://help.nova.app/tasks/', patterns: ['.nova'] },
      {
        tool: 'Lapce',
        source: 'https://github.com/lapce/lapce/blob/master/lapce-app/src/config.rs',
        patterns: ['.lapce'],
      },
      {
        tool: 'lazygit',
        source: 'https://github.com/jesseduffield/lazygit/blob/master/docs/Config.md',
        patterns: ['.lazygit.yml'],
      },
      {
        tool: 'Qt Creator',
        source: 'https://doc.qt.io/qtcreator/creator-sharing-project-settings.html',
        patterns: [
          '.qtcreator',
          '*.pro.user*',
          '*.txt.user*',
          '*.qbs.user*',
          '*.qmlproject.user*',
          '*.creator.user*',
          '*.pro.shared',
          '*.txt.shared',
          '*.qbs.shared',
          '*.qmlproject.shared',
          '*.creator.shared',
        ],
      },
      {
        tool: 'development containers',
        source: 'https://containers.dev/implementors/json_reference/',
        patterns: ['.devcontainer', '.devcontainer.json'],
      },
      {
        tool: 'Gitpod, Ona',
        source: 'https://ona.com/docs/classic/user/references/gitpod-yml',
        patterns: ['.gitpod.*', '.ona'],
      },
      {
        tool: 'Replit',
        source: 'https://docs.replit.com/features/project-setup/configuration',
        patterns: ['.replit', 'replit.nix'],
      },
      {
        tool: 'Firebase Studio',
        source: 'https://firebase.google.com/docs/studio/devnix-reference',
        patterns: ['.idx'],
      },
      {
        tool: 'CodeSandbox',
        source: 'https://codesandbox.io/docs/learn/devboxes/task',
        patterns: ['.codesandbox'],
      },
      {
        tool: 'StackBlitz',
        source: 'https://developer.stackblitz.com/docs/platform/project-config',
        patterns: ['.stackblitzrc'],
      },
      {
        tool: 'Devfile',
        source: 'https://devfile.io/docs/2.3.0/adding-event-bindings',
        patterns: ['devfile.yaml', '.devfile.yaml'],
      },
    ],
  },
]
