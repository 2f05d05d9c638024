/** `caisson/client`: calls of the HTTP service, runs as steps of workflow engines, and the messages of webhooks. */
export type { JournalEvent } from '#specs/protocol/event.ts'
export type { Problem } from '#specs/service/resources.ts'
export type { CallOf, InputOf, OutputOf, ReplyOf, Route, UploadBody } from '#specs/service/route.ts'
export { type RouteName, routes } from '#specs/service/routes.ts'
export { DeltaItem } from '#specs/service/run-resources.ts'
export { WebhookMessage } from '#specs/service/webhook-resources.ts'
export { type RunToEndOptions, runToEnd } from './run-to-end.ts'
export {
  type ClientOptions,
  type EventsOptions,
  type ServiceCall,
  ServiceClient,
  ServiceError,
  type ServiceEvent,
  type ServiceReply,
} from './service-client.ts'
export { type CheckedWebhook, type ReceivedWebhook, readWebhook, WebhookError } from './webhooks.ts'
