/** One line and one example of each event and delta, for `docs/events.md`. Every example is valid by its schema. */
import type { AgentEvent, Delta, HostDelta, HostEvent } from '#specs/protocol/event.ts'

type Of<E extends { type: string }, T extends E['type']> = Omit<Extract<E, { type: T }>, 'type'>
type Examples<E extends { type: string }> = {
  readonly [T in E['type']]: readonly [summary: string, example: Of<E, T>]
}

const sha256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
const usage = { requests: 1, inputTokens: 5_210, cachedTokens: 4_096, outputTokens: 180, reasoningTokens: 64 }
const call = { stepId: 'report', callId: 'c7Kd02mQa' }
const paths = { conflicts: [{ path: 'notes.md', reason: 'changed since the run' }] }

export const hostExamples: Examples<HostEvent> = {
  'run-start': [
    'The run begins.',
    {
      prompt: 'Write report.md about sales.csv',
      model: 'nvidia/nemotron-3-super-120b-a12b',
      provider: 'nvidia',
      directory: '/data/sales',
      metadata: { ticket: 'T-1' },
      limits: {
        maxTurnsPerStep: 32,
        maxToolCalls: 400,
        maxParallelSteps: 3,
        maxAgents: 16,
        maxParallelAgents: 4,
        maxDepth: 3,
        maxWallMs: 1_800_000,
        maxTokens: 2_000_000,
      },
    },
  ],
  'queue-start': [
    'The run waits for its turn; the deltas `prepare` tell its place.',
    { priority: 'normal', startBy: 1_795_390_720_000 },
  ],
  'queue-end': ['The run may start, or continue.', { waitedMs: 4_200 }],
  'workspace-ready': [
    'The files that the VM gets are chosen.',
    {
      files: 12,
      bytes: 48_211,
      leftOut: 1,
      examples: [{ path: '.env', reason: 'secret' }],
      manifestSha256: sha256,
      folders: [{ name: 'prices', path: '/data/prices', files: 3, bytes: 9_120, leftOut: 0, examples: [] }],
    },
  ],
  'vm-ready': [
    'The VM has started, and its agent answers.',
    {
      start: 'template',
      accelerator: 'kvm',
      confinement: 'bubblewrap',
      imageKey: '5b1c9e',
      agentDigest: '91d4aa',
      phasesMs: { restore: 90, agent: 40 },
    },
  ],
  'vm-sleep': ['The VM is saved while the run waits for a person.', { durationMs: 800 }],
  'vm-wake': ['The saved VM is restored.', { durationMs: 300, prepared: true }],
  checkpoint: [
    'The run as it is here is on the disk: another agent can continue from this line.',
    { checkpointId: 'cp-0d4f1a8be2c6937f', durationMs: 70, elapsedMs: 12_400, exchanges: 3 },
  ],
  'run-sleep': [
    'The run waits only for people, without a VM: its journal and disk remain. With `paused: true` it continues when somebody resumes it, else with an answer.',
    { checkpointId: 'cp-0d4f1a8be2c6937f' },
  ],
  'run-resume': [
    'Another agent continues the run, in a new VM, from a checkpoint.',
    { epoch: 2, checkpointId: 'cp-0d4f1a8be2c6937f', message: 'the VM ended in the middle of the run' },
  ],
  'run-take': [
    'A host of a fleet took the run over from another one, which can write nothing more.',
    { epoch: 2, host: 'build-7', message: 'the host before gave no sign of life' },
  ],
  'run-interrupt': [
    'The process of the run left it as it is: the run is interrupted, and another process can continue it.',
    {
      reason: 'model_unreachable',
      message:
        'The model server takes requests for big/model again after 2026-11-28 17:00 (UTC): HTTP 429: try again in 5 hours\nThen continue the run: caisson runs resume run-0123456789abcdef0123',
    },
  ],
  'vm-kept': ['The VM is saved for a run that continues this one.', {}],
  'vm-keep-failed': ['The VM could not be saved for a later run.', { message: 'the disk is full' }],
  'vm-end': ['The VM ended.', { expected: false, message: 'QEMU was killed by signal 9' }],
  'session-start': ['A session with the agent begins.', { session: 1, resumed: false }],
  'session-end': [
    'A session with the agent ended.',
    { session: 1, reason: 'heartbeat', message: 'no answer for 15 s' },
  ],
  'approval-request': [
    'An approval is asked for. It waits for a person, unless `approval-decision` follows at once.',
    {
      kind: 'cooperative',
      request: {
        approvalId: 'ap-1',
        agentPath: 'root',
        ...call,
        tool: 'run_bash',
        arguments: '{"command":"git status; rm old.txt"}',
        preview: 'git status; rm old.txt',
      },
      digest: sha256,
      because: 'no rule allows: rm old.txt',
      answers: [
        { label: 'yes, this once', decision: 'allow', scope: 'once' },
        {
          label: 'yes, exactly this command in this run',
          decision: 'allow',
          scope: 'run',
          reach: 'command',
        },
        { label: 'no', decision: 'deny', scope: 'once' },
      ],
    },
  ],
  'approval-decision': [
    'An approval is decided; every client gets it.',
    { approvalId: 'ap-1', decision: 'allow', scope: 'once', by: 'person', name: 'ann', via: 'terminal' },
  ],
  'approval-revoke': [
    'An answer for the run is revoked: later calls are asked about again.',
    { approvalId: 'ap-1', by: 'ann' },
  ],
  'model-start': [
    'The gateway took a model request. One `model-end` follows.',
    { requestId: 'model-7', agentPath: 'root', stepId: 'report', turn: 2 },
  ],
  'model-retry': [
    'The model server refused a request and did nothing with it; it is sent again, or another model is asked.',
    {
      requestId: 'model-7',
      attempt: 2,
      status: 503,
      cause: 'Overloaded',
      delayMs: 0,
      fallback: 'qwen3-coder',
    },
  ],
  'model-end': [
    'A model request ended.',
    {
      requestId: 'model-7',
      providerRequestId: 'req-77',
      status: 200,
      durationMs: 4_100,
      queuedMs: 20_050,
      usage,
      costUsd: 0.0021,
      fallback: 'qwen3-coder',
      responseModel: 'qwen3-coder-480b-a35b',
      estimated: false,
    },
  ],
  'egress-denied': [
    'A connection out of the VM was refused.',
    { target: 'GET https://example.com/', reason: 'no rule allows it' },
  ],
  'egress-start': [
    'A program in the VM has a connection to a server, over which nothing has been sent yet.',
    { kind: 'tunnel', target: 'pypi.org:443', rule: 'allow pypi.org' },
  ],
  'egress-end': [
    'A connection or request out of the VM ended.',
    {
      kind: 'tunnel',
      target: 'pypi.org:443',
      rule: 'allow pypi.org',
      bytesOut: 1_200,
      bytesIn: 80_400,
      durationMs: 640,
    },
  ],
  'changes-ready': [
    'The changes of the run are collected.',
    {
      entries: 2,
      contentBytes: 5_120,
      flagged: [],
      paths: [
        { path: 'notes.md', kind: 'modified', added: 1, removed: 1 },
        { path: 'report.md', kind: 'added', added: 40, removed: 0 },
      ],
      sha256,
    },
  ],
  'apply-start': ['Changes begin to be applied.', { paths: 2, sha256, by: 'key ci (0123456789ab)' }],
  'apply-end': [
    'Changes were applied.',
    { applied: 1, paths: ['report.md'], leftOut: 0, ...paths, failed: [], total: 1 },
  ],
  'undo-start': ['Applied changes begin to be undone.', { paths: 1, by: 'Ada' }],
  'undo-end': [
    'Applied changes were undone.',
    { restored: 1, paths: ['report.md'], conflicts: [], total: 0 },
  ],
  'vm-access': [
    'A person opens a shell, a command or a port of the VM.',
    { kind: 'command', detail: 'ls -l' },
  ],
  'hook-end': [
    'A hook was asked.',
    {
      point: 'before-tool',
      hook: 'the configuration: check.sh',
      agentPath: 'root',
      ...call,
      decision: 'allow',
      durationMs: 35,
    },
  ],
  'host-tool-start': [
    'A tool of the application starts.',
    { agentPath: 'root', ...call, tool: 'find_customer', arguments: '{"id":7}' },
  ],
  'host-tool-end': [
    'A tool of the application ended.',
    { callId: call.callId, tool: 'find_customer', durationMs: 12 },
  ],
  'memory-propose': [
    'The run proposes to remember something of the workspace.',
    {
      agentPath: 'root',
      note: {
        noteId: 'mem-0123456789ab',
        text: 'Tests run with npm test.',
        tags: ['test'],
        state: 'proposed',
      },
    },
  ],
  'note-propose': [
    'The run proposes a note on a proposal.',
    {
      agentPath: 'root',
      note: {
        noteId: 'gov-0123456789ab',
        proposalId: 'PROP-7',
        text: 'The budget is not given.',
        author: 'run-0123456789abcdef0123',
        at: 1_795_390_660_272,
        state: 'proposed',
      },
    },
  ],
  'notes-decide': [
    'Proposed notes are kept or dropped.',
    { kept: ['mem-0123456789ab'], dropped: [], by: 'ann' },
  ],
  'steer-request': [
    'A person sends the agent a message.',
    { messageId: 'msg-1', text: 'Use euros.', by: 'ann' },
  ],
  'agent-cancel-request': [
    'A person cancels one sub-agent; the run continues.',
    { agentPath: 'root/tests', reason: 'It repeats what the others do.', by: 'ann' },
  ],
  'pause-request': ['A person pauses the agent.', { by: 'ann' }],
  'resume-request': ['A person resumes the agent.', { by: 'ann' }],
  'cancel-request': ['A person or a limit cancels the run.', { by: 'ann' }],
  'disk-wait': [
    'Writing waited for free space on the disk of the host.',
    {
      what: "the run's journal",
      directory: '/data/caisson',
      neededBytes: 1_048_576,
      durationMs: 9_000,
    },
  ],
  'run-end': [
    'The run ended; its last event, unless changes are applied or undone later.',
    {
      outcome: 'completed',
      reason: 'completed',
      message: '',
      summary: '{"rows":120}',
      structured: true,
      usage,
      durationMs: 41_000,
    },
  ],
}

export const agentExamples: Examples<AgentEvent> = {
  'plan-update': [
    'The plan, or a revision of it.',
    {
      revision: 1,
      plan: {
        goal: 'A report about the sales',
        steps: [
          {
            id: 'report',
            title: 'Write the report',
            instructions: 'Write report.md.',
            needs: [],
            onFailure: 'abort',
            writes: ['report.md'],
          },
        ],
      },
    },
  ],
  'step-start': ['A step starts.', { stepId: 'report' }],
  'step-retry': [
    'A failed step is tried again.',
    { stepId: 'report', attempt: 2, reason: 'the file was empty' },
  ],
  'step-end': ['A step ended.', { stepId: 'report', state: 'completed', text: 'report.md is written.' }],
  'turn-end': [
    'The model answered.',
    {
      stepId: 'report',
      turn: 2,
      text: '',
      calls: [{ callId: call.callId, tool: 'write_file' }],
      reasoning: 'First the columns, then the sums.',
      usage,
      finishReason: 'tool_calls',
      context: { tokens: 5_390, maxTokens: 131_072 },
    },
  ],
  'turn-retry': [
    'A model request of the turn failed, and the agent makes another.',
    { stepId: 'report', code: 'timeout', message: 'no answer in 300 s', delayMs: 2_000 },
  ],
  'tool-start': [
    'A tool call starts.',
    { ...call, tool: 'write_file', kind: 'edit', arguments: '{"content":"…","path":"report.md"}' },
  ],
  'tool-end': [
    'A tool call ended.',
    {
      ...call,
      tool: 'write_file',
      output: 'wrote report.md',
      writes: ['report.md'],
      diffs: [{ path: 'report.md', added: 1, removed: 0, diff: '@@ -0,0 +1 @@\n+# Sales\n' }],
      durationMs: 4,
    },
  ],
  'agent-start': [
    'A sub-agent starts; its events have its own `agentPath`.',
    {
      stepId: 'report',
      brief: 'Check the numbers.',
      tools: ['read_file'],
      limits: { maxTurns: 8 },
      isolation: 'vm',
      hosts: [],
      approvals: 'deny',
    },
  ],
  'agent-end': [
    'A sub-agent ended.',
    {
      stepId: 'report',
      state: 'completed',
      reason: 'completed',
      text: 'They are right.',
      usage,
      merged: 0,
      conflicts: [],
    },
  ],
  'context-compact': [
    'The conversation of a step was shortened.',
    {
      stepId: 'report',
      beforeTokens: 110_000,
      afterTokens: 30_000,
      summary: 'Read sales.csv; wrote half of report.md.',
    },
  ],
  'context-shown': [
    'Sections of the application or of hooks entered the conversation of an agent.',
    {
      stepId: 'report',
      sections: [{ name: 'prices', from: 'the application', chars: 40_000, shownChars: 13_600 }],
    },
  ],
  'steer-seen': ['The agent read messages of a person.', { stepId: 'report', messageIds: ['msg-1'] }],
  'pause-start': ['The agent is paused.', {}],
  'pause-end': ['The agent is resumed.', {}],
  note: ['A line for the person.', { level: 'warn', text: 'sales.csv has two empty rows' }],
}

export const deltaExamples: Examples<Delta | HostDelta> = {
  'text-delta': [
    'Text of the model, as it arrives.',
    { stepId: 'report', turn: 2, offset: 0, text: 'The sales ' },
  ],
  'reasoning-delta': [
    'Reasoning of the model, as it arrives.',
    { stepId: 'report', turn: 2, offset: 0, text: 'First the columns' },
  ],
  'arguments-delta': [
    'Arguments of a call, as the model writes them.',
    { stepId: 'report', turn: 2, offset: 0, index: 0, tool: 'write_file', text: '{"path":"rep' },
  ],
  'turn-reset': [
    'The stream of the turn broke, and the request is made again: what was sent of it is void.',
    { stepId: 'report', turn: 2 },
  ],
  'tool-output-delta': [
    'Output of a program, as it arrives.',
    { ...call, stream: 'stdout', offset: 0, text: '12 rows\n' },
  ],
  prepare: [
    "What the run waits for before and after its agent's work, at each change.",
    { what: 'queue', text: 'waiting for a VM of the pool: number 2 in the queue', place: 2 },
  ],
  'time-left': [
    'The wall time that is left, when its clock stops or runs on.',
    { remainingMs: 1_620_000, at: 1_795_390_660_272, stoppedBy: 'approval' },
  ],
  changes: [
    'What the run has changed so far, after calls while somebody watches, every two seconds at most.',
    { paths: [{ path: 'report.md', kind: 'added', added: 24, removed: 0 }], isPartial: false },
  ],
  'vm-use': [
    'What the VM uses of the host, every three seconds while somebody watches.',
    { memoryBytes: 402_653_184, memoryMaxBytes: 1_073_741_824, cpuPercent: 84, diskBytes: 1_048_576 },
  ],
  'run-interrupted': [
    'The connection to the process of the run broke, and no end is recorded; only for a watcher in another process.',
    { lastAt: 1_795_390_660_272, message: 'the process of the run closed the connection' },
  ],
  'model-wait': [
    'What an open model request waits for now; at each change.',
    { requestId: 'model-7', for: 'pause', position: 1, until: 1_795_390_680_272 },
  ],
  'disk-full': [
    'The disk of the host is full, and writing waits.',
    {
      text: "the run's journal waits for 1 MiB of free space",
      directory: '/data/caisson',
      freeBytes: 4_096,
      neededBytes: 1_048_576,
    },
  ],
}
