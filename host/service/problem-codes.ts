/** The codes of problems that the routes refuse with, in words; `/docs` has a section for each, where `type` leads. */
import type { ErrorCode } from '#specs/errors.ts'

/** Codes of the service itself. `specs/service.md` lists them too. */
const ownCodes = {
  unauthorized: 'The request has no valid token, API key or JWT',
  forbidden: 'The key or JWT lacks the scope, or the request comes from another origin or name',
  not_found: 'There is no such route, or nothing of this name that the caller may see',
  unknown: 'The run has no question with this ID',
  invalid_request: 'Path, query, headers or body do not fit the schema of the route; errors names each field',
  body_too_large: 'The body is larger than the route takes',
  not_json: 'The body is not application/json',
  not_tar: 'The body is not application/x-tar',
  other_model: 'The service uses another model than the request expects',
  idempotency_conflict: 'The key was used with another body',
  too_many_requests:
    'A quota or a bound of requests is reached; Retry-After says when to try again, where it is known',
  decided: 'The question is already answered, or no longer waits',
  not_offered: 'The question does not offer this answer',
  question_changed: 'The question is another one than the answer was for',
  link_expired: 'The link to the question has expired',
  not_ready: 'No VM can be started on this machine',
} as const
type OwnCode = keyof typeof ownCodes
export type ProblemCode = OwnCode | ErrorCode

/** The words of `specs/errors.md`. */
const errorWords: Readonly<Record<ErrorCode, string>> = {
  invalid_options: 'An option, an argument or a word of the command line cannot be used',
  invalid_config: 'The configuration file, or a value given instead of it, cannot be used',
  price_unknown:
    'The run has a limit of cost, and the price of its model, or of the model of embeddings, is not known',
  invalid_rules: 'Rules for approvals or network access cannot be used',
  invalid_plan: 'A plan cannot be read or carried out',
  invalid_workflow: 'A workflow file cannot be read or cannot run',
  invalid_recording: 'A recording of a run cannot be replayed',
  invalid_archive: 'An exported run cannot be imported: it is damaged, or of another form',
  workspace_refused: 'A directory cannot be a workspace',
  run_not_found: 'No run, or more than one, has this name',
  vm_not_found: 'No running VM, or more than one, has this name',
  file_not_found: 'A sandbox has no file with this path, or the recording of a run no image with this digest',
  run_busy: 'A process works on the run or in its directory',
  not_possible_now: 'The host, run, VM or approval is not in a state that allows it',
  connection_lost: 'The process that has the run or the VM does not answer, or stopped answering',
  version_mismatch: 'The other end speaks another version of Caisson',
  state_corrupted: 'A file that Caisson wrote is not what it wrote',
  state_unavailable: 'A folder, file, lock or keyring of this user cannot be read or written',
  lock_unsupported: 'The file system has no locks',
  permission_denied: 'The system does not allow this user to read or write a file',
  no_space: 'A disk is full or too small',
  limit_reached: 'A bound of Caisson is reached, such as that of kept runs or notes',
  queue_full: 'Too many runs wait: in the queue of the host, or as forks of one caller',
  queue_timeout: 'A run did not begin within the time that its request allowed',
  provider_unavailable: 'No model provider can be chosen, or its key is missing',
  image_unavailable: 'The VM image is missing, damaged or cannot be built',
  vm_failed: 'A VM did not start, or could not be saved or restored',
  vm_lost: 'A VM ended in the middle of its work',
  agent_lost: 'The agent in the VM ended or does not answer',
  protocol_violation: 'The guest sent what it may not send',
  model_unreachable: "The model's server cannot be reached, or is overloaded",
  model_refused: "The model's server refuses the request or the key",
  model_broken: "The model's answer cannot be used",
  tool_failed: 'A tool call of `caisson/runtime` failed, with the error mode `throw`',
  script_mismatch:
    'A scripted model met a request that its script does not have, or was not asked for all of it',
  denied: 'A person, a rule or a hook said no',
  cancelled: 'The caller or a signal cancelled it',
  internal: 'A fault of Caisson',
}

/** Every code of a problem, with what it means. */
export const problemCodes: Readonly<Record<ProblemCode, string>> = { ...ownCodes, ...errorWords }
