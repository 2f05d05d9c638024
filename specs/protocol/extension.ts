/** What a task adds to the agent's own tools: tools of the host application, MCP servers, skills, memory. */
import * as z from 'zod'
import { ToolError } from './error.ts'
import { AgentPath, Count, Document, Id, Line, Milliseconds, RunId, Sha256, Text } from './text.ts'

/** A tool name that every provider accepts. */
export const ToolName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ -')

/** A JSON schema, as large as a tool's may be. */
const JsonSchema = z.record(z.string().max(200), z.json())

// ---- tools of the host application ------------------------------------------------------------------------

/** A tool that runs on the host, provided by the application. */
export const HostTool = z.strictObject({
  name: ToolName,
  description: Text,
  /** JSON schema of an object; the host validates with it, and the model receives it. */
  parameters: JsonSchema,
  readOnly: z.boolean(),
})
export type HostTool = z.infer<typeof HostTool>

/** A call of such a tool. Repeated under the same id, it is the same call and executes once. */
export const HostToolCall = z.strictObject({
  runId: RunId,
  agentPath: AgentPath,
  stepId: Id,
  callId: Id,
  /** The call whose program makes this one; absent: the model makes it. */
  parentCallId: Id.optional(),
  tool: ToolName,
  /** Canonical JSON of an object. */
  arguments: Document,
})
export type HostToolCall = z.infer<typeof HostToolCall>

export const HostToolResult = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true), output: Document }),
  z.strictObject({ ok: z.literal(false), error: ToolError }),
])
export type HostToolResult = z.infer<typeof HostToolResult>

// ---- MCP servers ------------------------------------------------------------------------------------------

export const McpServerName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')

/**
 * A server in the usual `mcpServers` form. One with a `command` runs inside the VM, confined like every program
 * there; one with a `url` is reached under the gateway's policy. Values may contain secret placeholders, `{{NAME}}`,
 * never a secret.
 */
export const McpServer = z.strictObject({
  transport: z.enum(['stdio', 'sse', 'streamable-http']),
  command: Line.min(1).optional(),
  args: z.array(Text).max(256).optional(),
  env: z.record(Line.min(1), Text).optional(),
  /** Relative to the workspace. */
  cwd: Line.optional(),
  url: z.string().min(1).max(4_096).optional(),
  headers: z.record(Line.min(1), Text).optional(),
  timeoutMs: Milliseconds.min(1).optional(),
  connectTimeoutMs: Milliseconds.min(1).optional(),
  /** Whether its claim that a tool only reads is trusted. Absent: false. */
  trustHints: z.boolean().optional(),
})
export type McpServer = z.infer<typeof McpServer>

/** The tool name of the approval request for a server's tools. */
export const mcpOfferTool = 'use_mcp_server'

/** Arguments of that request: the server's own description. The host compares it with what was approved before. */
export const McpOffer = z.strictObject({
  server: McpServerName,
  /** Who configured it. */
  source: z.enum(['user', 'workspace']),
  /** Program and arguments, or address. */
  runs: Text,
  tools: z
    .array(
      z.strictObject({
        name: Line.min(1),
        /** The beginning of the server's description. */
        description: Line,
        /** Over the canonical JSON of name, complete description, input schema, and the read-only claim. */
        sha256: Sha256,
      }),
    )
    .max(128),
})
export type McpOffer = z.infer<typeof McpOffer>

// ---- skills -----------------------------------------------------------------------------------------------

export const SkillId = z.string().min(1).max(200)

/** A skill of the user's folders as described to the model; `POST http://gateway/skills/load` returns the rest. */
export const SkillHead = z.strictObject({ skillId: SkillId, description: Line })
export type SkillHead = z.infer<typeof SkillHead>

export const SkillLoadRequest = z.strictObject({ skillId: SkillId })
/** Files below the skill's folder, without `SKILL.md`. */
export const SkillLoadAnswer = z.strictObject({
  skillId: SkillId,
  description: Line,
  /** Without the front matter. */
  instructions: Document,
  files: z
    .array(
      z.strictObject({
        path: Line.min(1),
        mode: z.enum(['0644', '0755']),
        base64: z.string().max(2 * 1024 * 1024),
      }),
    )
    .max(256),
  /** Paths of files omitted for number or size. */
  leftOut: z.array(Line).max(256),
})
export type SkillLoadAnswer = z.infer<typeof SkillLoadAnswer>

// ---- memory and governance notes --------------------------------------------------------------------------

export const NoteId = z
  .string()
  .regex(/^[a-z]{3}-[0-9a-f]{12}$/, 'expected three letters, - and 12 hex digits')

/** One thing to remember of a workspace, across runs. */
export const MemoryNote = z.strictObject({
  noteId: NoteId,
  text: Text.min(1),
  /** Keywords for search. */
  tags: z.array(Line.min(1)).max(16),
  /** `proposed`: written by this run, not yet accepted by a person. */
  state: z.enum(['kept', 'proposed']),
})
export type MemoryNote = z.infer<typeof MemoryNote>

/** Body of `POST http://gateway/memory/remember`; `replaces` names a note to replace. */
export const RememberRequest = z.strictObject({
  text: Text.min(1),
  tags: z.array(Line.min(1)).max(16).default([]),
  replaces: NoteId.optional(),
  agentPath: AgentPath,
})
export const RememberAnswer = z.strictObject({ note: MemoryNote })

/** Body of `POST http://gateway/memory/recall`; without a query the newest. */
export const RecallRequest = z.strictObject({
  query: Line.optional(),
  limit: z.int().min(1).max(50).default(10),
})
export const RecallAnswer = z.strictObject({ notes: z.array(MemoryNote).max(50), total: Count })

/** Id of a proposal: `PROP-` and its name. */
export const ProposalId = z
  .string()
  .regex(/^PROP-[A-Za-z0-9._-]{1,64}$/, 'expected PROP- and 1 to 64 of A-Z a-z 0-9 . _ -')

export const GovernanceNote = z.strictObject({
  noteId: NoteId,
  proposalId: ProposalId,
  text: Text.min(1),
  /** Who wrote it: a run, or `person`. */
  author: Line,
  /** Milliseconds since 1970. */
  at: Milliseconds,
  state: z.enum(['kept', 'proposed']),
})
export type GovernanceNote = z.infer<typeof GovernanceNote>

/** Body of `POST http://gateway/notes/add` and `/notes/list`. */
export const NoteAddRequest = z.strictObject({
  proposalId: ProposalId,
  text: Text.min(1),
  agentPath: AgentPath,
})
export const NoteAddAnswer = z.strictObject({ note: GovernanceNote })
export const NoteListRequest = z.strictObject({ proposalId: ProposalId })
export const NoteListAnswer = z.strictObject({ notes: z.array(GovernanceNote).max(1_000) })
