/**
 * Contract between the code that serves the guest's requests (tunnels, plain requests, web tools) and the code that
 * judges them. An address is judged before its name is resolved, and again after; connections use only judged
 * addresses.
 */
import type { Duplex } from 'node:stream'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { EgressRecord, EgressStart } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'

/** Permission to connect to a target now. */
export interface Permit {
  readonly target: Target
  /** The allowing rule, in words. */
  readonly rule: string
}

/** The egress of one run. Journals denials; the serving code records allowed connections. */
export interface Egress {
  /** Judges the target and, if a rule asks, waits for the person. A refusal names its rule and how to ask. */
  admit(target: Target, signal: AbortSignal): Promise<Result<Permit, WireError>>
  /**
   * Connects to a public address of the permitted host, or through the user's proxy. Plain TCP: the caller adds TLS for
   * the permitted name.
   */
  connect(permit: Permit, signal: AbortSignal): Promise<Result<Duplex, WireError>>
  /**
   * Handles the agent's question for network access (`approval/request` of the tool `request_access`, so that it
   * survives lost sessions and a saved VM). See `EgressApprovals.decide`.
   */
  ask(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalDecision>
  /**
   * Journals an open connection of a program; resolves when the line is written. The caller sends nothing before, and
   * nothing at all when it could not be written.
   */
  start(kind: EgressStart['kind'], permit: Permit): Promise<Result<null, WireError>>
  /** Journals the end of an allowed connection. */
  record(record: EgressRecord): void
}
