/**
 * The contract between what serves the guest's requests (tunnels, plain requests, web tools) and what judges them. An
 * address is judged before anything of it is looked up; a connection goes to an address that was judged after.
 */
import type { Duplex } from 'node:stream'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { EgressRecord } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'

/** A target that may be reached, now. */
export interface Permit {
  readonly target: Target
  /** The rule that allows it, in words. */
  readonly rule: string
}

/** The egress of one run. Denials are journaled here; what was let out is recorded by who served it. */
export interface Egress {
  /** Judges, and where a rule asks, waits for the person. A refusal names its rule and how to ask. */
  admit(target: Target, signal: AbortSignal): Promise<Result<Permit, WireError>>
  /**
   * Connects to an address of the permitted host that is neither private nor of this machine, or through the user's
   * proxy. Plain TCP: who calls it speaks TLS itself, for the name that was permitted.
   */
  connect(permit: Permit, signal: AbortSignal): Promise<Result<Duplex, WireError>>
  /**
   * The agent's question for a way out (`approval/request` of the tool `request_access`, so that it outlives sessions and
   * a sleeping VM), decided by a rule or a person: `EgressApprovals.decide` of access.ts.
   */
  ask(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalDecision>
  /** Puts the end of something that was let out into the journal. */
  record(record: EgressRecord): void
}
