/** `caisson/runtime`: model calls and the turn loop as a library, without a VM; what the agent in the VM is built on. */
export type * from './contract.ts'
