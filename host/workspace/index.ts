/**
 * Public API of host/workspace: converts a directory into a disk and a manifest, and a change stream into a review;
 * applies and undoes changes.
 */
export { type ApplyOptions, type ApplyStep, type ApplySummary, applyChanges } from './apply/apply.ts'
export { removeLeftStaged, removeStagedOf } from './apply/staged-files.ts'
export { type UndoOptions, type UndoSummary, undoChanges } from './apply/undo.ts'
export { type ChangeSet, openContents, readChangeSet, type StoredChange } from './change-set.ts'
export type { ConflictState } from './conflicts.ts'
export { checkDirectory, type OwnPlaces } from './directory-check.ts'
export type { FlaggedInHistory, HistoryReport } from './git-history/examine.ts'
export type { MovedReference } from './git-history/references.ts'
export type { SetAside } from './git-history/set-aside.ts'
export { type Manifest, type ManifestEntry, readManifest, writeManifest } from './manifest.ts'
export { type ReceiveOptions, receiveChanges } from './receive/receive.ts'
export { type Diff, type DiffBounds, diffItem } from './review/diff.ts'
export {
  flaggedPaths,
  holdBack,
  type Review,
  type ReviewItem,
  type ReviewSide,
  reviewChanges,
} from './review/review.ts'
export { type Choice, type HeldBack, notChosen, type Selection, selectChanges } from './review/selection.ts'
export { buildDisk, type Disk, type DiskOptions, estimateDiskBytes, workspaceDiskBytes } from './scan/disk.ts'
export { joinRuleChanges, RuleChange, ruleChangeOf } from './scan/rule-changes.ts'
export { defaultMaxBytes, type Scan, type ScanOptions, scanWorkspace } from './scan/scan.ts'
export {
  failureOf,
  type WorkspaceError,
  type WorkspaceErrorCode,
  type WorkspaceResult,
} from './workspace-error.ts'
export { type ApplyLog, countApplied, readAppliedCount, readApplyLog } from './write-ahead.ts'
