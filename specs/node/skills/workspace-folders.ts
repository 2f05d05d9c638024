/** Folders in which a workspace keeps skills; for equal ids the later folder wins. Changes there are flagged. */
export const workspaceSkillFolders = ['.claude/skills', '.agents/skills'] as const
