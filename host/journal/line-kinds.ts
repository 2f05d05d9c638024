/** How a journal treats each kind of event: what is on the disk before anything else happens, and what always fits. */

/** Events after which the file is synced before anything else happens. */
export const barriers: ReadonlySet<string> = new Set([
  'run-start',
  // A run that waits is continued by another process, in its order.
  'queue-start',
  'queue-end',
  // What a run continues from is on the disk after it: without the line its changes could not be applied.
  'workspace-ready',
  'approval-request',
  'approval-decision',
  // An answer that was revoked must not decide after a crash.
  'approval-revoke',
  // A host tool has effects outside the VM: its start must be known after any crash.
  'host-tool-start',
  'notes-decide',
  'vm-kept',
  'checkpoint',
  'run-sleep',
  'run-interrupt',
  'run-take',
  'run-resume',
  'changes-ready',
  'apply-start',
  'apply-end',
  'undo-start',
  'undo-end',
  'run-end',
])

/** Ends of started work, and actions of a person after the run. A guest cannot cause more ends than starts. */
export const alwaysFit: ReadonlySet<string> = new Set([
  'approval-decision',
  'approval-revoke',
  'host-tool-end',
  'notes-decide',
  'cancel-request',
  'vm-kept',
  'vm-end',
  'run-interrupt',
  'run-take',
  'changes-ready',
  'apply-start',
  'apply-end',
  'undo-start',
  'undo-end',
  'run-end',
])

/**
 * Events that whoever decides who writes has stored before anything else happens: the barriers, and what starts an effect
 * outside the VM.
 */
export const fencedBarriers: ReadonlySet<string> = new Set([...barriers, 'egress-start'])
