/** Other agents: what they take as instructions, settings, hooks and tool servers when they start in the folder. */
import { workspaceSkillFolders } from '#specs/node/skills/workspace-folders.ts'
import type { FlagGroup } from './row.ts'

export const agents: readonly FlagGroup[] = [
  {
    reason: 'another agent or its tools obey it',
    rows: [
      {
        tool: "Caisson's own agent",
        source: 'https://agentskills.io/specification',
        patterns: [...workspaceSkillFolders, '.agents', '.caisson', '.caissonignore'],
      },
      {
        tool: 'agents that read AGENTS.md',
        source: 'https://agents.md/',
        patterns: ['AGENTS.md', 'AGENTS.*.md', 'AGENT.md', '.agent', '.agent.md', '.agentignore'],
      },
      {
        tool: 'MCP clients',
        source: 'https://modelcontextprotocol.io/docs/develop/connect-local-servers',
        patterns: [
          '.mcp.json',
          'mcp.json',
          'mcp_config.json',
          'mcp-config.json',
          'mcp_settings.json',
          '.mcp',
        ],
      },
      {
        tool: 'Claude Code',
        source: 'https://code.claude.com/docs/en/settings',
        patterns: ['.claude', 'CLAUDE.md', 'CLAUDE.*.md', '.claude.json'],
      },
      { tool: 'Codex', source: 'https://developers.openai.com/codex/config-reference', patterns: ['.codex'] },
      {
        tool: 'Gemini CLI',
        source: 'https://geminicli.com/docs/reference/configuration/',
        patterns: ['.gemini', 'GEMINI.md', '.geminiignore', '.aiexclude'],
      },
      {
        tool: 'GitHub Copilot',
        source:
          'https://docs.github.com/en/copilot/how-tos/configure-custom-instructions/add-repository-instructions',
        patterns: [
          '.github/copilot*',
          '.github/instructions',
          '.github/prompts',
          '.github/agents',
          '.github/chatmodes',
          '.github/hooks',
          '.github/skills',
          '.copilot',
          '*.instructions.md',
          '*.prompt.md',
          '*.chatmode.md',
          '*.agent.md',
        ],
      },
      {
        tool: 'Cursor',
        source: 'https://cursor.com/docs/context/rules',
        patterns: ['.cursor', '.cursorrules', '.cursorignore', '.cursorindexingignore'],
      },
      {
        tool: 'Windsurf',
        source: 'https://docs.windsurf.com/windsurf/cascade/memories',
        patterns: ['.windsurf', '.windsurfrules', '.codeium', '.codeiumignore'],
      },
      {
        tool: 'Cline',
        source: 'https://docs.cline.bot/customization/cline-rules',
        patterns: ['.cline', '.clinerules*', '.clineignore'],
      },
      {
        tool: 'Roo Code',
        source: 'https://docs.roocode.com/features/custom-instructions',
        patterns: ['.roo*'],
      },
      { tool: 'Kilo Code', source: 'https://kilo.ai/docs/customize/custom-rules', patterns: ['.kilo*'] },
      {
        tool: 'Continue',
        source: 'https://docs.continue.dev/customize/deep-dives/rules',
        patterns: ['.continue', '.continuerc.json', '.continuerules', '.continueignore'],
      },
      { tool: 'Kiro, Amazon Q', source: 'https://kiro.dev/docs/steering/', patterns: ['.kiro', '.amazonq'] },
      { tool: 'Aider', source: 'https://aider.chat/docs/config/aider_conf.html', patterns: ['.aider*'] },
      {
        tool: 'OpenCode',
        source: 'https://opencode.ai/docs/config/',
        patterns: ['.opencode', 'opencode.json*'],
      },
      {
        tool: 'Crush',
        source: 'https://github.com/charmbracelet/crush#configuration',
        patterns: ['crush.json', '.crush*', 'CRUSH*.md'],
      },
      {
        tool: 'goose',
        source: 'https://block.github.io/goose/docs/guides/context-engineering/using-goosehints/',
        patterns: ['.goose*'],
      },
      {
        tool: 'Junie',
        source: 'https://www.jetbrains.com/help/junie/customize-guidelines.html',
        patterns: ['.junie'],
      },
      {
        tool: 'JetBrains AI Assistant',
        source: 'https://www.jetbrains.com/help/ai-assistant/configure-project-rules.html',
        patterns: ['.aiassistant', '.aiignore', '.noai'],
      },
      {
        tool: 'Augment',
        source: 'https://docs.augmentcode.com/setup-augment/guidelines',
        patterns: ['.augment*'],
      },
      { tool: 'Trae', source: 'https://docs.trae.ai/ide/rules', patterns: ['.trae'] },
      {
        tool: 'Qwen Code',
        source: 'https://qwenlm.github.io/qwen-code-docs/',
        patterns: ['.qwen', 'QWEN.md', '.qwenignore'],
      },
      {
        tool: 'Warp',
        source: 'https://docs.warp.dev/knowledge-and-collaboration/rules',
        patterns: ['WARP.md', '.warp', '.warpindexingignore'],
      },
      { tool: 'Zed', source: 'https://zed.dev/docs/ai/rules', patterns: ['.rules'] },
      {
        tool: 'OpenHands',
        source: 'https://docs.openhands.dev/openhands/usage/customization/repository',
        patterns: ['.openhands*'],
      },
      {
        tool: 'Zencoder',
        source: 'https://docs.zencoder.ai/rules-context/zen-rules',
        patterns: ['.zencoder', '.zenflow'],
      },
      {
        tool: 'Tabnine',
        source: 'https://docs.tabnine.com/main/getting-started/tabnine-agent/guidelines',
        patterns: ['.tabnine*'],
      },
      { tool: 'Factory', source: 'https://docs.factory.ai/', patterns: ['.factory'] },
      { tool: 'Amp', source: 'https://ampcode.com/manual', patterns: ['.amp'] },
      {
        tool: 'Firebender',
        source: 'https://docs.firebender.com/',
        patterns: ['firebender.json', '.firebender'],
      },
      {
        tool: 'Rovo Dev',
        source: 'https://support.atlassian.com/rovo/docs/use-memory-in-rovo-dev-cli/',
        patterns: ['.rovodev', '.agent.local.md'],
      },
      { tool: 'Antigravity', source: 'https://antigravity.google/docs', patterns: ['.antigravity*'] },
      { tool: 'iFlow', source: 'https://platform.iflow.cn/en/cli', patterns: ['IFLOW.md', '.iflow'] },
      { tool: 'Devin', source: 'https://docs.devin.ai/', patterns: ['.devin'] },
      { tool: 'Cody', source: 'https://sourcegraph.com/docs/cody', patterns: ['.cody', '.sourcegraph'] },
    ],
  },
]
