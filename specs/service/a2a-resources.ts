/** Messages of A2A 1.0 over JSON-RPC (https://a2a-protocol.org/v1.0.0/specification), in the form that the service checks. */
import * as z from 'zod'

/** A request. The protocol's library checks method and parameters, and answers what is wrong in its own form. */
export const A2aRequest = z.record(z.string(), z.unknown())

export const A2aReply = z.looseObject({ jsonrpc: z.literal('2.0') })

/** What the agent is, where it is reached and which authentication it wants. */
export const AgentCardResource = z.looseObject({ name: z.string(), version: z.string() })
