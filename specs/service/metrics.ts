/** The metrics of the HTTP service: every name, type and label with its values. `GET /metrics` gives these and no others. */
import { RunOutcome } from '../protocol/task.ts'

export interface Metric {
  readonly type: 'counter' | 'gauge' | 'histogram'
  /** What is counted or measured, for people; one line. */
  readonly help: string
  /** The values of each label; null: a bounded set that is not known in advance. Absent: no labels. */
  readonly labels?: Readonly<Record<string, readonly string[] | null>>
  /** Upper bounds of a histogram, ascending, without the infinite one. */
  readonly buckets?: readonly number[]
}

export const runStatuses = [
  ...RunOutcome.options,
  'queued',
  'running',
  'waiting',
  'sleeping',
  'interrupted',
  'damaged',
] as const
/** What a run that starts waits for. */
export const startPhases = ['queue', 'workspace', 'vm', 'agent'] as const
export type StartPhase = (typeof startPhases)[number]
/** How a VM started. */
const startKinds = ['boot', 'template', 'saved'] as const
const deciders = ['person', 'rule', 'mode', 'cancel', 'agent'] as const
export const vmStates = ['starting', 'running', 'paused', 'stopping', 'waiting', 'unreachable'] as const

/** VMs that have a series of their own; the sums count all. */
export const vmSlots = 64
const slots = Array.from({ length: vmSlots }, (_, index) => String(index + 1))

export const metrics = {
  caisson_build_info: {
    type: 'gauge',
    help: 'Version of the service and of Node.js; always 1',
    labels: { version: null, node: null },
  },
  caisson_ready: { type: 'gauge', help: 'Whether a VM can be started on this machine: 1 or 0' },
  caisson_source_up: {
    type: 'gauge',
    help: 'Whether a source could be read for this scrape; its metrics are absent where it is 0',
    labels: { source: ['runs', 'vms', 'checks', 'fleet'] },
  },
  caisson_runs: {
    type: 'gauge',
    help: 'Stored runs by status, of every process of the user',
    labels: { status: runStatuses },
  },
  caisson_approvals_waiting: { type: 'gauge', help: 'Questions that wait for a person' },
  caisson_approval_oldest_wait_seconds: {
    type: 'gauge',
    help: 'For how long the run that has waited longest has waited for a person; 0: none waits',
  },
  caisson_notices_total: {
    type: 'counter',
    help: 'Attempts to tell of questions that wait and of ends of runs, by receiver and result',
    labels: { receiver: ['webhook', 'browser', 'desktop'], result: ['sent', 'retried', 'failed'] },
  },
  caisson_runs_starting: {
    type: 'gauge',
    help: 'Runs of this service that have no agent yet, by what they wait for',
    labels: { for: startPhases },
  },
  caisson_queue_waiting: { type: 'gauge', help: 'Runs that wait in the queue of this service' },
  caisson_queue_oldest_wait_seconds: {
    type: 'gauge',
    help: 'For how long the run that has waited longest in the queue has waited; 0: none waits',
  },
  caisson_queue_at_work: { type: 'gauge', help: 'Runs of this service that may use a VM now' },
  caisson_queue_at_work_limit: { type: 'gauge', help: 'Runs of this service that may use a VM at once' },
  caisson_queue_refused_total: { type: 'counter', help: 'Runs that were refused because the queue was full' },
  caisson_queue_wait_seconds: {
    type: 'histogram',
    help: 'Time that runs waited in the queue until they started, or continued; those that did not wait are not counted',
    buckets: [0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600],
  },
  caisson_fleet_hosts: {
    type: 'gauge',
    help: 'Hosts of the fleet that were seen within a day, by what they do',
    labels: { state: ['taking', 'draining', 'gone'] },
  },
  caisson_fleet_waiting: {
    type: 'gauge',
    help: 'Runs of the fleet that wait for a host',
  },
  caisson_fleet_oldest_wait_seconds: {
    type: 'gauge',
    help: 'For how long the run that has waited longest for a host has waited, of those that a host can serve; 0: none waits',
  },
  caisson_fleet_slots: {
    type: 'gauge',
    help: 'Slots of the hosts of the fleet that take runs',
    labels: { state: ['free', 'taken'] },
  },
  caisson_fleet_unservable: {
    type: 'gauge',
    help: 'Runs of the fleet that no host can serve, by what hosts lack; hosts: no host takes runs',
    labels: { reason: ['hosts', 'labels', 'architecture', 'accelerator', 'memory', 'image', 'version'] },
  },
  caisson_runs_started_total: { type: 'counter', help: 'Runs that this service started' },
  caisson_runs_resumed_total: {
    type: 'counter',
    help: 'Continuations of runs in a new VM: after a loss, a sleep or a restart',
  },
  caisson_runs_ended_total: {
    type: 'counter',
    help: 'Runs of this service that ended, by outcome',
    labels: { outcome: RunOutcome.options },
  },
  caisson_run_start_seconds: {
    type: 'histogram',
    help: 'Time from the start or the continuation of a run until its agent answered, without its wait in the queue, by how the VM started',
    labels: { start: startKinds },
    buckets: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300],
  },
  caisson_model_requests_total: {
    type: 'counter',
    help: 'Requests of runs of this service to models, by result',
    labels: { result: ['ok', 'error'] },
  },
  caisson_model_tokens_total: {
    type: 'counter',
    help: 'Tokens of these requests; reasoning tokens are a part of output, cached ones of input',
    labels: { kind: ['input', 'output', 'reasoning', 'cached'] },
  },
  caisson_model_cost_usd_total: {
    type: 'counter',
    help: 'Cost of these requests in US dollars, by the price table; requests without a price are not counted',
  },
  caisson_approval_decisions_total: {
    type: 'counter',
    help: 'Decisions on approvals in runs of this service, by decision and by who decided',
    labels: { decision: ['allow', 'deny'], by: deciders },
  },
  caisson_egress_denied_total: {
    type: 'counter',
    help: 'Network accesses that the host refused to runs of this service',
  },
  caisson_vms: { type: 'gauge', help: 'VMs of the user by state', labels: { state: vmStates } },
  caisson_vms_memory_bytes: {
    type: 'gauge',
    help: 'Sum of caisson_vm_memory_bytes over all VMs; memory that VMs of one template share is counted in each',
  },
  caisson_vms_memory_limit_bytes: {
    type: 'gauge',
    help: 'Sum of the memory that the guests of all VMs may use',
  },
  caisson_vms_disk_bytes: {
    type: 'gauge',
    help: 'Sum of what the scratch disks of all VMs take on the host',
  },
  caisson_vm_memory_bytes: {
    type: 'gauge',
    help: `Resident memory of the process of one VM; the slot is free again when the VM ends (1 to ${vmSlots})`,
    labels: { slot: slots },
  },
  caisson_http_requests_total: {
    type: 'counter',
    help: 'Answered HTTP requests, by route of the OpenAPI document (none: no route) and status',
    labels: { route: null, status: null },
  },
  process_resident_memory_bytes: { type: 'gauge', help: 'Resident memory of the process of the service' },
  process_cpu_seconds_total: { type: 'counter', help: 'CPU time of the process of the service' },
  process_start_time_seconds: {
    type: 'gauge',
    help: 'When the process of the service started, seconds since 1970',
  },
} as const satisfies Readonly<Record<string, Metric>>

export type MetricName = keyof typeof metrics
/** Every label of a metric with a value. */
export type LabelsOf<N extends MetricName> = (typeof metrics)[N] extends { labels: infer L }
  ? {
      readonly [K in keyof L]: L[K] extends readonly (infer V extends string)[] ? V : string
    }
  : Readonly<Record<string, never>>
