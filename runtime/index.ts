/** `caisson/runtime`: model calls and the turn loop as a library, without a VM; what the agent in the VM is built on. */

export { parseToolValidationFailureArtifact } from '#specs/protocol/validation-failure.ts'
export type * from './contract.ts'
export * from './turn-loop/index.ts'
