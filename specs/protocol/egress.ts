/**
 * What the guest may ask of the gateway beside the model: the rules that decide, and the bodies of the gateway's own
 * requests (web pages, search). Where each is served is in specs/gateway.md.
 */
import * as z from 'zod'
import { Count, Document, Line, Text } from './text.ts'

/**
 * One rule of egress. deny wins over ask, ask over allow; what no rule matches is denied, or asked where the user's
 * configuration says so. What an allow rule leaves out it means narrowly, as each field says; a deny or ask rule means
 * wholly what it leaves out: every scheme, port, method and path.
 */
export const EgressRule = z.strictObject({
  effect: z.enum(['allow', 'ask', 'deny']),
  /**
   * `example.com`: that name alone. `*.example.com`: every name below it, not itself. An address in its usual spelling:
   * itself. `*`: every name and public address; in a deny rule every address.
   */
  host: Line.min(1),
  /** Absent: 443 for https, 80 for http. */
  ports: z.array(z.int().min(1).max(0xffff)).min(1).max(64).optional(),
  /** Absent: https alone, so that nobody on the way can read or change it. */
  schemes: z
    .array(z.enum(['https', 'http']))
    .min(1)
    .optional(),
  /** Upper case. A rule with methods or a path never allows a tunnel, in which neither can be seen; it may deny one. */
  methods: z
    .array(z.string().regex(/^[A-Z]{1,20}$/))
    .min(1)
    .max(20)
    .optional(),
  /** Of the path without query, from its `/`: exact, or `/a/*` for `/a` and everything below. */
  path: Line.regex(/^\//, 'begins with /').optional(),
  /** Shown to people and, for a denial, to the agent. */
  reason: Line.optional(),
})
export type EgressRule = z.infer<typeof EgressRule>

/**
 * How far an answer about a way out goes around the address that was asked for: its host and port; every name below the
 * host, too; or its path alone with what is below that, which nothing but requests of the gateway's own can use.
 */
export const AccessReach = z.enum(['host', 'suffix', 'path'])
export type AccessReach = z.infer<typeof AccessReach>

/** Arguments of the tool `request_access`, which the host itself reads. */
export const AccessRequest = z.strictObject({
  /** http or https, whole. */
  url: z.string().min(1).max(8_192),
  /** The agent's words; shown as such. */
  reason: z.string().min(1).max(2_000),
})
export type AccessRequest = z.infer<typeof AccessRequest>

/** An address of a page; many are longer than a line. */
const Url = z.string().min(1).max(4_096)

/** Body of `POST http://gateway/web/fetch`. */
export const WebFetchRequest = z.strictObject({
  url: Url,
  /** `text` (the default): readable Markdown of HTML; `raw`: as it came. */
  form: z.enum(['text', 'raw']).optional(),
  /** Headers of the request; a value may hold placeholders of secrets, `{{NAME}}`. */
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
  /** From the web: never to be taken for instructions. */
  content: Document,
  /** Whether more would have come. */
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

/** One connection or request that was let out, as the journal keeps it at its end. */
export const EgressRecord = z.strictObject({
  kind: z.enum(['tunnel', 'http', 'fetch', 'search']),
  /** Method and address; in a tunnel host and port are all that is known. */
  target: Line,
  /** The rule that allowed it, in words. */
  rule: Line,
  /** From the guest, and to it. */
  bytesOut: Count,
  bytesIn: Count,
  durationMs: Count,
  /** Names of the secrets that were put in. */
  secrets: z.array(Line).max(32).optional(),
  /** Absent when it ended well. */
  error: Line.optional(),
})
export type EgressRecord = z.infer<typeof EgressRecord>
