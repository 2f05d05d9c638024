/**
 * Public API of host/workspace: converts a directory into a disk and a manifest, and a change stream into a review;
 * applies and undoes changes.
 */
export { type AppliedPart, type ApplySummary, applyChanges } from './apply/apply.ts'
export { removeLeftStaged, removeStagedOf } from './apply/staged-files.ts'
export { type UndoSummary, undoChanges } from './apply/undo.ts'
export { basesOf, keepBases, type ReadBefore, readBase, readFromDisk } from './base-contents.ts'
export {
  type ChangeSet,
  changeSetPaths,
  openContents,
  readChangeSet,
  readSlices,
  readWhole,
  type StoredChange,
} from './change-set.ts'
export { checkDirectory, checkFolder, contains } from './directory-check.ts'
export { flagByPath } from './flags/flag-rules.ts'
export type { HistoryReport } from './git-history/examine.ts'
export type { SetAside } from './git-history/set-aside.ts'
export { type Manifest, manifestName, readManifest, writeManifest } from './manifest.ts'
export {
  type FileVersion,
  isStillReplaced,
  type PathVersions,
  readBefore,
  readVersions,
} from './path-versions.ts'
export { receiveChanges } from './receive/receive.ts'
export { diffItem, outlineChanges } from './review/diff.ts'
export { chooseHunks, type Hunk, type HunkSelection, hunksOf } from './review/hunks.ts'
export {
  holdBack,
  isBinary,
  type Review,
  type ReviewItem,
  type ReviewSide,
  reviewChanges,
} from './review/review.ts'
export {
  type ChangeSelection,
  type HeldBack,
  namedPaths,
  notChosen,
  selectChanges,
} from './review/selection.ts'
export { buildDisk } from './scan/disk.ts'
export type { CopiedFolder } from './scan/disk-tree.ts'
export { digestErofsFile } from './scan/erofs.ts'
export { joinRuleChanges, RuleChange, ruleChangeOf } from './scan/rule-changes.ts'
export { type Scan, scanWorkspace, workspaceMaxBytes } from './scan/scan.ts'
export { isLikelySecret } from './scan/secret-files.ts'
export {
  failureOf,
  type WorkspaceError,
  type WorkspaceErrorCode,
  WorkspaceFailure,
  type WorkspaceResult,
  workspaceSuccess,
} from './workspace-error.ts'
export {
  type ApplyLog,
  countApplied,
  type LoggedOperation,
  readAppliedCount,
  readApplyLog,
  readLoggedOperations,
} from './write-ahead.ts'
