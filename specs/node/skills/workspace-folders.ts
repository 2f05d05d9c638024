/** Where a workspace keeps skills; of two of one id the one in the later folder is taken. Changes there are flagged. */
export const workspaceSkillFolders = ['.claude/skills', '.agents/skills'] as const
