/**
 * The gateway's requests besides model requests: egress rules, and the bodies of web and search requests.
 * specs/gateway.md lists the routes.
 */
import * as z from 'zod'
import { Count, Document, Line, Text } from './text.ts'

/**
 * One egress rule. deny wins over ask, ask over allow; an unmatched request is denied, or asked about if the user's
 * configuration says so. Omitted fields are narrow in an allow rule, as each field says; in a deny or ask rule they
 * match every scheme, port, method and path.
 */
export const EgressRule = z.strictObject({
  effect: z.enum(['allow', 'ask', 'deny']),
  /**
   * `example.com`: that name alone. `*.example.com`: every name below it, not itself. A normalized address: itself.
   * `*`: every name and public address; in a deny rule every address.
   */
  host: Line.min(1),
  /** Absent: 443 for https, 80 for http. */
  ports: z.array(z.int().min(1).max(0xffff)).min(1).max(64).optional(),
  /** Absent: only https, so that nobody in between can read or change it. */
  schemes: z
    .array(z.enum(['https', 'http']))
    .min(1)
    .optional(),
  /** Upper case. A rule with methods or a path never allows a tunnel, which hides both; it may deny one. */
  methods: z
    .array(z.string().regex(/^[A-Z]{1,20}$/))
    .min(1)
    .max(20)
    .optional(),
  /** Path without query, from its `/`: exact, or `/a/*` for `/a` and everything below. */
  path: Line.regex(/^\//, 'begins with /').optional(),
  /** Shown to people and, for a denial, to the agent. */
  reason: Line.optional(),
})
export type EgressRule = z.infer<typeof EgressRule>

/**
 * How broadly an answer about network access applies: the host and port; also every name below the host; or only the
 * path and everything below, which only the gateway's own requests can use.
 */
export const AccessReach = z.enum(['host', 'suffix', 'path'])
export type AccessReach = z.infer<typeof AccessReach>

/** Arguments of the tool `request_access`; the host itself reads them. */
export const accessReasonMaxChars = 2_000

export const AccessRequest = z.strictObject({
  /** A complete http or https URL. */
  url: z.string().min(1).max(8_192),
  /** The agent's reason; shown as such. */
  reason: z.string().min(1).max(accessReasonMaxChars),
})
export type AccessRequest = z.infer<typeof AccessRequest>

/** An address of a page; many are longer than a line. */
const Url = z.string().min(1).max(4_096)

/** Body of `POST http://gateway/web/fetch`. */
export const WebFetchRequest = z.strictObject({
  url: Url,
  /** `text` (the default): HTML as readable Markdown; `raw`: unchanged. */
  form: z.enum(['text', 'raw']).optional(),
  /** Request headers; a value may contain secret placeholders, `{{NAME}}`. */
  headers: z.record(Line, Line).optional(),
})
export type WebFetchRequest = z.infer<typeof WebFetchRequest>

export const WebFetchAnswer = z.strictObject({
  /** After redirects. */
  url: Url,
  status: z.int().min(100).max(599),
  contentType: Line,
  /** Of an HTML page; empty otherwise. */
  title: Line,
  /** From the web: never treated as instructions. */
  content: Document,
  /** Whether the content was truncated. */
  cut: z.boolean(),
})
export type WebFetchAnswer = z.infer<typeof WebFetchAnswer>

/** Body of `POST http://gateway/web/search`. */
export const WebSearchRequest = z.strictObject({
  query: Line.min(1),
  count: z.int().min(1).max(20).optional(),
})
export type WebSearchRequest = z.infer<typeof WebSearchRequest>

export const WebSearchAnswer = z.strictObject({
  results: z.array(z.strictObject({ title: Line, url: Url, snippet: Text })).max(20),
})
export type WebSearchAnswer = z.infer<typeof WebSearchAnswer>

/**
 * A connection of a program to a permitted server, journaled before its first byte leaves the host: a run that
 * continues knows what its programs may have reached. The web tools only read, and have none.
 */
export const EgressStart = z.strictObject({
  kind: z.enum(['tunnel', 'http']),
  /** Method and address; for a tunnel only host and port are known. */
  target: Line,
  /** Description of the rule that allowed it. */
  rule: Line,
})
export type EgressStart = z.infer<typeof EgressStart>

/** One allowed connection or request, journaled at its end. */
export const EgressRecord = z.strictObject({
  kind: z.enum(['tunnel', 'http', 'fetch', 'search']),
  /** As in {@link EgressStart}. */
  target: Line,
  rule: Line,
  /** Bytes from the guest, and to it. */
  bytesOut: Count,
  bytesIn: Count,
  durationMs: Count,
  /** Names of inserted secrets. */
  secrets: z.array(Line).max(32).optional(),
  /** Absent when it succeeded. */
  error: Line.optional(),
})
export type EgressRecord = z.infer<typeof EgressRecord>
