/**
 * Caisson's requirements by id. A test fails for an id that is neither cited by a test (`[ID]` in its name) nor
 * deferred here.
 */

export interface Requirement {
  readonly behavior: string
  /** Why no test covers it yet. */
  readonly deferred?: string
  /** The missing part of the feature; `behavior` does not include it. */
  readonly missing?: string
}

const later = (behavior: string, why: string): Requirement => ({ behavior, deferred: why })
const now = (behavior: string, missing?: string): Requirement => ({
  behavior,
  ...(missing === undefined ? {} : { missing }),
})

export const requirements: Readonly<Record<string, Requirement>> = {
  // Planning and execution
  'S0.01': now('A goal that needs it becomes an ordered plan of two or more steps'),
  'S0.02': now(
    'A plan of the model, and every answer with a requested form, is parsed against its schema and refused otherwise',
  ),
  'S0.03': now('Planner and executor run without each other'),
  'S0.04': now('The tool registry is typed, refuses doubled and unknown names, and validates arguments'),
  'S0.05': now(
    'The prompt is assembled from task, context and workspace, out of sections that are registered one by one; the application and hooks add sections with budget, place and recorded source',
  ),
  'S0.06': now('The model is behind one interface that speaks the OpenAI-compatible protocol'),
  'S0.07': now('Limits and gates are kept below the model'),
  'S0.08': now(
    'HTTP API: POST /run on the loopback address, with a message and a context; a refusal names the invalid field',
  ),
  'S0.09': now(
    'The provider is configured by environment variables or the user’s file: a server address, a model and a proxy; its key comes from a variable, a private file, a command or the keyring, and is never shown',
  ),
  'S0.10': now(
    'The command line is a client of the host, and editors are by `caisson acp`, chat pages by AG-UI',
    'a VS Code extension',
  ),
  'S0.11': now('Tool calling does not depend on the provider'),
  'S0.12': now('Every execution leaves an audit log whose damage is noticed'),
  'S0.13': now(
    'A person alone keeps notes, of their own or proposed by a run; later runs of the workspace know and search them; notes are bounded, hold no secret of the agent, and survive damage of their file',
  ),
  'S0.14': now(
    'The workspace can be searched by words, and by meaning with an embedding model: passages ranked, as they are now, and what was left out said',
  ),
  'S0.15': now(
    'The code of specs, runtime, agent and host is strict ESM TypeScript, linted, formatted, with checked import directions',
  ),

  // The agent in the VM
  'S1.01': now(
    'The agent receives tasks from the host over RPC and serves one after another, also after one that failed',
  ),
  'S1.02': now('The plan reaches the host before the first step runs'),
  'S1.03': now('Completion is reported exactly once, for success, failure and cancellation'),
  'S1.04': now(
    'Tools read, write, list, edit, search, move and delete files, run Python and bash, and fetch and search the web',
  ),
  'S1.05': now('A tool has name, description, input and output schema, approval flag, and returns a result'),
  'S1.06': now('A value that breaks its output schema becomes an error'),
  'S1.07': now(
    'The model client streams from an OpenAI-compatible server with a bearer key; model and server are configurable, and prompts are templates in one module',
  ),
  'S1.08': now('File tools read and write nothing outside the workspace'),
  'S1.09': now('No exception crosses a tool boundary'),
  'S1.10': now(
    'Model deltas and progress are streamed to the host; each model request is reported from its start to its end, with what it waits for',
  ),
  'S1.11': now(
    'Tools that ask wait for an approval that is decided on the host: those that delete, and those that the run names; the question offers its answers, and the decision names who made it; answers for the run are listed, revoked and expire',
    'approval of what a program deletes inside the VM, which the review of the changes shows',
  ),
  'S1.12': now('Every tool call is logged in structured form, and the log reaches the host'),
  'S1.13': now('Sub-agents are started, coordinated and run in parallel'),
  'S1.14': now(
    'The VM has Node, Python and POSIX tools, and no network access but the gateway, which programs find as a proxy',
  ),
  'S1.15': now(
    'The runtime, tools, planning and protocol are specified in specs/, and AGENTS.md says where what is changed; files, headings, commands, options and bounds that documents name exist as they say, in docs/ too',
  ),

  // The runtime as a library
  'S2.01': now(
    'Environments are made and disposed, and `generate`, `stream` and `runTurnLoop` are called, from one entry of the package',
  ),
  'S2.02': now(
    'A call without an environment uses caches keyed by its configuration; an environment uses nothing but what it was given',
  ),
  'S2.03': now(
    'An environment owns providers, MCP servers, skills and the defaults of reasoning effort and tool permission',
  ),
  'S2.04': now(
    'Provider, model, messages, folder, reasoning effort, tool permission and abort signal are given by the call',
  ),
  'S2.05': now('Disposal ends what the library made itself, and nothing that the application brought'),
  'S2.06': now(
    'Providers of seven kinds stand behind one interface, isolated per environment, with a status that shows no key',
  ),
  'S2.07': now(
    '`stream` yields pieces and returns what `generate` returns, with the same tools; both repeat a request that may succeed later, and throw other failures with a code',
  ),
  'S2.08': now('A response says what it is, with its calls, its message for the transcript and its usage'),
  'S2.19': now(
    'The turn loop is generic in its state and asks the model by itself or through the application',
  ),
  'S2.20': now('The turn loop has safe limits, also where it is given nonsense for one'),
  'S2.21': now('Every end of the turn loop has one stop reason'),
  'S2.22': now(
    'The checks of an iteration come in a fixed order, and an instruction for one turn lives one turn',
  ),
  'S2.23': now(
    'Guards stop a batch of calls before the application carries it out, and count anew after a text',
  ),
  'S2.24': now('A time-out ends the loop at any moment; a model error is thrown; the end is reported once'),
  'S2.25': now('The result of the turn loop holds its whole trace, and its counters can be seeded'),
  'S2.26': now('The hooks of the turn loop are called in a fixed order and change nothing'),
  'S2.27': now(
    'Where evidence is required, no text is an answer before a call was carried out, in any language; text that promises instead of acting is rejected as often as allowed',
  ),
  'S2.28': now('Recovery instructions are exported, and overridden at three levels'),
  'S2.29': now('A call found in plain text becomes a tool call, marked as such on request'),
  'S2.31': now(
    'A failed tool call is a sentence, a durable artifact or an error, as the application chooses',
  ),
  'S2.32': now(
    '`complete` and `streamComplete` run turns up to an answer, a question, calls of the application or a failure, report each event and give back the transcript',
  ),
  'S2.33': now(
    'A model ends its run by final_answer, need_user_input or blocked, each the only call of its turn',
  ),
  'S2.30': now('The package has scripts to build, check and test, and end-to-end runs that need no network'),

  // Tools
  'S2.09': now(
    'The library has tools of its own, confined to a working directory, under reserved names; unless selected, only those that read are offered',
  ),
  'S2.10': now("The library's own tools are those that both the environment and the call select"),
  'S2.11': now('Tools of an application add to those of the library and never stand in their place'),
  'S2.12': now(
    "The library's MCP servers speak over three transports; their tools are namespaced, cached and merged, and all end with their registry",
  ),
  'S2.13': now(
    'The library finds skills under roots, in any file system that it is given, the later root first, whatever links and files it meets; roots can change at run time',
  ),
  'S2.14': now(
    '`load_skill` gives a skill in a block that its text cannot close, or says that there is none',
  ),
  'S2.15': now(
    "The library's tools read in pages, write whole files, list, search, fetch and run programs, each within its bounds",
  ),
  'S2.16': now(
    "The agent asks the person typed questions; only an answer of their form is one, and it is a fact of the run; a question of the library's is a pending artifact under the id of its call",
  ),
  'S2.17': now(
    'Harmless argument mistakes are corrected and recorded at every level; unknown parameters are refused',
  ),
  'S2.18': now('A validation failure tells the model which argument is wrong and what was expected'),
  'S4.04': now('Arithmetic without eval, a search of the web, and notes of proposals'),
  'S4.05': now(
    'Tools are typed by structure, without a base class, and register themselves from a folder of the application; a file or an extension that cannot be opened leaves only its own tools out, with the reason',
  ),
  'S4.06': now(
    'Without a key a deterministic, labelled offline model answers: it carries out the requests that specs/gateway.md lists and says that it does not understand others',
  ),
  'S4.07': now('The trace is complete, a failing tool does not end the agent, and steps are limited'),

  'S4.01': now(
    'A goal with a context and chosen tools is carried out from a program in one call, without HTTP, in a VM or without one; the answer has status, output and trace',
  ),
  'S4.02': now(
    'HTTP API: POST /api/v1/run-task with a goal, a context and a filter of tools; the answer has status, output and trace',
  ),
  'S4.03': now('HTTP API: governance notes, health and generated documents'),
  'S4.08': now(
    'A service configured by environment, CORS origins and port included, with files for containers, locked builds, and examples that are integration tests',
  ),
  'S4.09': now(
    'An application brings the storage of notes: in memory, in SQLite, or its own, which may be asynchronous; a goal is a task of a job queue, direct and over HTTP',
  ),
  'S4.10': now(
    'A service streams events, authenticates callers by key, token or JWT, and limits requests, runs, tokens and cost of each key or subject',
    'a database and tools on a chain',
  ),
  'S4.11': now(
    'Keys and the subjects of JWTs are authorized by scopes and see their own runs alone; requests and internal errors are logged without secrets',
    'several instances, process managers, pooled connections and caches',
  ),
  'S4.12': now(
    'Runs of a service wait in fair order for each caller, with priorities, deadlines, bounds, and a restart that loses none of them',
  ),
  'S4.13': now(
    'Workflow engines drive runs: a caller starts one run by a key of its own, also after a crash of either side, waits for its end or its questions without polling, and hears of both by signed webhooks that are tried again; examples for Restate, Temporal and Trigger.dev',
  ),

  // Workflow files
  'S3.01': now('A workflow is one JSON file of steps, functions and metadata'),
  'S3.02': now('A workflow step has messages, a next step, a model and functions of its own'),
  'S3.03': now(
    'A workflow function is described by JSON, and carried out by the application, an MCP server or its own code',
  ),
  'S3.04': now('A workflow runs step by step, its calls at once or one after the other'),
  'S3.05': now(
    'A function that fails ends its step and its workflow with a typed reason; the result is sent at every end',
  ),
  'S3.06': now('Any configured model of any provider is used by its id'),
  'S3.07': now(
    'Workflows run others, and take steps and functions of them, by name and version from a folder, SQLite or a store of the application, pinned by digest; a run keeps what it took',
  ),
  'S3.08': now('Long runs survive their process'),
  'S3.09': now(
    'Workflows branch on conditions, repeat steps, wait, go through lists and run other workflows, by expressions that cannot run code and always end',
  ),
  'S3.10': now('Functions of a user run in a sandbox, with bounds of time and memory'),
  'S3.11': now(
    'A step of a workflow adds steps and functions while it runs, within declared bounds and with no more rights than its own',
  ),
  'S3.12': now('A sample workflow, checked and drawn; its run has the journal and the logs of any run'),

  // The VM
  'V.01': now(
    'The VM starts out of a pool, as a copy of a template, or cold where that cannot be, with the time of every phase; a failure to start shows why',
  ),
  'V.02': now('The accelerator is probed by a trial boot, and doctor explains what was found'),
  'V.03': now(
    'Two VMs from one state never agree on a random value or an identity, nor on a stale time, from the first thing that is asked of them',
  ),
  'V.04': now(
    'A VM is saved with memory and disk as of one moment and continues later, also while a run waits for a person or between tasks; a running VM is paused and resumed',
  ),
  'V.05': now(
    'Several continuations of one run from one moment, which may be that of the request: a run at work then makes a checkpoint; one is kept',
  ),
  'V.06': now(
    'Memory, CPUs, disk and wall time are bounded, shown beside what a running VM uses of them, and freed when it ends; no QEMU outlives its host process',
  ),
  'V.07': now(
    'The image is built by one recipe, by a script or by Packer, for amd64 and arm64, locked, the same to the byte, verified, described by a bill of materials, and at most 120 MB; what is kept on disk is bounded, shown and can be freed',
    'VMs of arm64 that boot',
  ),
  'V.08': now(
    'A person looks into a running VM or run from another process: shell, logs, list, stop, ports, attach',
  ),
  'V.09': now(
    'QEMU runs without network, environment and privileges, under a seccomp filter and a user of its own, and sees only the programs of the system and its own files; where this sandbox is required and missing, no VM starts',
  ),
  'V.10': now(
    'The host runs only programs that it found by an absolute path, outside of workspaces and packages, where no other user can change them',
  ),
  'V.11': now(
    'A program works in a VM without a task: commands with input, output as it comes, an exit code and a time limit; ports; network access by rules; nothing outlives its close',
  ),
  'V.12': now(
    'A program reads, writes, lists and removes files of such a VM, byte by byte, and below its workspace alone; what changed there is reviewed, applied and undone like the changes of a run',
  ),
  'V.13': now(
    'A person and a program copy files and directories into a living VM and out of it; what a hostile VM sends is written below the one path that was given, and is bounded',
  ),

  // The agent core
  'A.01': now(
    'A plan is a graph with needs, conditions and agents; ready steps run at once, and a revision is recorded and cannot touch what has begun',
  ),
  'A.02': now(
    'The turn loop ends with one reason of a closed list; a model that goes in circles, by calls or results, with a period of one to five, is reported once and then stopped',
  ),
  'A.03': now(
    'Budgets form a tree: a sub-agent spends a part of its parent’s; a limit leaves one turn to conclude; a run has exactly one terminal event',
  ),
  'A.04': now(
    'The conversation is valid at every moment and continues after a crash; before it exceeds the window of the model it is made shorter, without losing rules, task, plan and budget, and what was cut can be read again',
  ),
  'A.05': now('What the model is sent begins with the same bytes in every request of a run'),
  'A.06': now(
    'Edits land where they are meant or show the nearest lines, patches are applied whole or not at all, and what changed since it was read is not overwritten',
  ),
  'A.07': now(
    'Sub-agents work at once and start their own to a depth, each on a view of its parent’s and with no more rights; they ask the person as the run does, and what they change is merged or shown as a conflict; one in a VM of its own begins with a copy of its parent’s disk, and the host holds it to the hosts and approvals that it was given',
  ),
  'A.08': now(
    'A person can send a message to a running agent or one sub-agent, hold the run, and cancel it or one sub-agent; what it has said by then is kept',
  ),
  'A.09': now(
    'MCP servers, skills, AGENTS.md, memory and a search over the workspace serve a run; what of them comes from strangers is asked about, bounded, and shown as theirs; MCP servers are spoken to in 2025-11-25 and 2026-07-28, and the host signs in to them by OAuth: its tokens are renewed, go to their own server alone, and are never in the VM',
  ),
  'A.10': now(
    'What the user’s hooks refuse around runs, steps, model requests and tool calls does not happen, at every depth',
  ),
  'A.11': now(
    'A plan is put before a person where that is wanted, who allows it, changes it or denies it with words; a plan can be handed in, and a run that only plans changes nothing and lets nothing out',
  ),
  'A.12': now(
    'With an output schema the final answer of a run is JSON that fits it by the host’s own check; a run whose answer never fits fails with the mismatches and keeps the text, and what is no schema is refused before a VM starts',
  ),
  'A.13': now(
    'Rules for commands see every command of a shell command: an allow rule lets a call through only where rules allow all of them and the files that they write, a deny or ask rule applies to any of them, and what is not understood is asked about; a yes for a command in this run holds for the same text alone',
  ),
  'A.14': now(
    'A program of run_python or run_javascript calls the tools of its run as functions: each call is validated, asked about, journaled below the program’s own, counted and cancelled as one of the model, no other process can make one, and what happened outside of the VM is not repeated when the program runs again',
  ),

  // The test kit, and what nobody writes on purpose
  'T.01': now(
    'A scripted model stands in for a real one in process and over HTTP, records what it was asked, and fails where the script was not played',
  ),
  'T.02': now(
    'Whatever a model says, a tool gives or a workspace holds is data that ends no block of the prompt and no line of a result; a run continues or ends with a reason, in bounded time and memory',
  ),
  'T.03': now(
    'Tests notice small changes of the modules that decide, in a seeded sample of bounded time; a survivor is shown with its line, the change and the ids that its tests cite',
  ),
  'T.04': now(
    'Each task of the evaluation has a hidden check that refuses the workspace as it is and accepts a known solution; a test that ends before its last line does not pass',
  ),
  'T.05': now(
    'An evaluation writes each attempt when it ends, so that a killed one continues; runs that could not start are no attempts; attempts are summarized with intervals, and two evaluations are compared over the tasks of both; what a stopped process left half written does not count',
  ),

  // Channels
  'C.01': now('Control messages are bounded frames, and any framing error ends the session with its reason'),
  'C.02': now(
    'Every message is checked on both sides: what is malformed, unknown, too long, too deep, too frequent or in the wrong direction is refused or ends the session, and never hangs or crashes the host',
  ),
  'C.03': now(
    'A new session takes over in the middle of a run: no event is lost or doubled, nothing stays pending, and bytes of an earlier session are dropped',
  ),
  'C.04': now(
    'Streams go over a port of their own, with back-pressure, and fail fast on both ends with their session',
  ),
  'C.05': now('The protocol is declared once; host and agent of different protocols refuse each other'),

  // Gateway
  'G.01': now(
    'No key enters the guest, not even its memory, or a program that builds its image; keys are taken out of what servers answer, and credentials that the guest sends are dropped',
  ),
  'G.02': now(
    'Nothing leaves the VM but by a rule of the user or an answer: rules name host, port, method and path; deny wins, order does not matter, spellings do not help; names are resolved on the host or by the user’s proxy, and neither a permitted name nor a redirect leads to an address inside',
  ),
  'G.03': now(
    'A refused connection says that it was refused, by which rule, and what to do; a person can be asked for it, by scope, and what was refused then works',
  ),
  'G.04': now(
    'Secrets of the user stay on the host: a request that it makes itself carries one only to the hosts that it is bound to',
    'placeholders in connections that the guest encrypts itself',
  ),
  'G.05': now(
    'A run spends no more requests, tokens and money than its limits, by the usage that the server reports; the model is pinned; a stream that sends no events ends by a time limit; a key is asked no faster than its server allows, Retry-After included; what fails is repeated by its own rule, never a turn whose calls were started',
  ),
  'G.06': now('What a run exchanged with its model and the web is recorded, and repeats it without either'),
  'G.07': now(
    'A stream is read alike in every form that servers give it; calls that a model wrote badly are repaired where the repair is certain and loses nothing, and asked again where not; calls that it only considered are never carried out',
  ),

  'G.08': now(
    'A permitted connection tries each address of its name, is carried unchanged within limits of count, bytes, time and silence, holds the faster side back, and ends on one side when it ends on the other',
  ),
  'G.09': now(
    'A model that sees gets the images of the task and of the files that it reads, within bounds of size, count and tokens; another model gets a note with their facts; journal, log and recording hold an image once, by its digest; the host, the HTTP service and the page give it to who may read the run',
  ),

  // Workspace
  'W.01': now(
    'The change set is shown as a diff and applied whole, by file or by hunk; conflicts are shown; it can be undone and applied again',
  ),
  'W.02': now(
    'Modes, links, binaries, large files, deletions, renames, empty folders and ignore rules survive, also in ten thousand files; a review of many thousand changes leaves other work its turns',
    'a bound for the time that thousands of files take, which is only measured',
  ),
  'W.03': now('Paths that execute on the host are flagged and left out unless named'),
  'W.04': now(
    'A checkpoint of a VM’s disk holds all that was written until then; it opens after the VM was killed, and in copies',
    'a checkpoint of every step of a long plan',
  ),
  'W.05': now(
    'A full disk of the host loses no finished work: what cannot be written waits for room, the run says how much it needs, and a person can cancel the wait',
  ),
  'W.06': now(
    'Several runs work on copies of one directory at once; a path that two of them changed is a conflict that names the other run, and no order of applies, undos, edits and crashes loses content',
  ),
  'W.07': now(
    'The other side of a conflict is printed, written to a new file, given as a patch or merged three ways; no file is replaced',
  ),
  'W.08': now(
    'A run can get further folders: its agents and programs read them, nothing there can be changed, and no change set holds anything of them',
  ),
  'W.09': now(
    'Each line that a run changed names the call that made it, with turn, task, messages and approval, also after renames, sub-agents and resumes; where the journal leaves it open, all calls that may have made it',
  ),

  // Runs that survive
  'R.01': now(
    'A run that was killed anywhere finishes with the same workspace, and no effect twice',
    'requests of programs that had left the VM are made again, and named',
  ),
  'R.02': now(
    'A link that is cut at any byte, or whose host process or QEMU is stopped for any time, loses no event and doubles none',
  ),
  'R.03': now(
    'A run is replayed without a network, model, application or person, as a run of its own, and nothing of that is applied; the first difference is named with its place; its journal is verified by its chain',
  ),
  'R.04': now(
    'A run is a trace by the GenAI conventions of OpenTelemetry where a collector is set: folded from its events, without content unless asked for, and never waited for by the run',
  ),
  'R.05': now(
    'What one process at a time may change is locked by the kernel: a dead holder keeps nothing, one that is stopped or in another container loses nothing, and a wait has a bound and names the holder',
  ),
  'R.06': now(
    'A journal has one writer from its first line to its last, and a directory one process that changes it, whichever state folder or container asks',
  ),
  'R.07': now(
    'An apply or undo that is interrupted, killed or out of room says what it did, leaves no file of its own behind, and can be continued or undone',
  ),
  'R.12': now(
    'A run that waits for a person for long is its journal and its disk alone; the first answer of any process continues it, and nothing is asked twice; lists say what waits, sleeps or was interrupted, and since when',
  ),
  'R.10': now(
    'A run continues without the terminal that started it: a background process carries it out, any other process watches, answers, cancels or continues it, and neither its arguments nor its log hold a key',
  ),
  'R.11': now(
    'A stopped process keeps its run; a take-over ends it first, and a process whose run was taken over writes nothing more to it; a run is continued by the agent that it was started with, or from its beginning',
  ),
  'R.08': later(
    'Metrics by OpenTelemetry',
    'cost and usage of a run are in its journal and on its spans; no meter is built yet',
  ),

  'R.09': now(
    'A run is exported as one file without the keys and secrets that the host knows, and imported whole or not at all: each form, digest, link and disk of the file is checked before it is a run; what was permitted elsewhere is not',
    'forks of imported runs',
  ),

  // Host surfaces
  'H.01': now(
    'The library is typed; the CLI shows progress, has colors where a terminal is, plain lines where not, JSON lines with --json, and completes its commands in the shell; a conversation gives tasks one after another in one VM, keeps no line that begins with a blank, and outlives a cancelled task; a wrong option or setting is refused by its name, and untrusted text cannot control the terminal; runs carry metadata of the application, are listed by it, and are watched in one feed',
  ),
  'H.05': now(
    'A run of this process and one of another have one interface, asynchronous and with coded errors; its result holds outcome, summary, changes, usage and cost, and a call whose approvals nothing answers is denied with a warning instead of waiting',
  ),
  'H.02': now(
    'HTTP API with OpenAPI 3.1, events from any number on, idempotency keys, a token, API keys and JWTs with scopes, quotas and runs of their own; a request from another site, another machine without TLS or without the token is refused; runs outlive the service; sub-agents are steered and cancelled, answers for a run revoked, runs forked, rewound and compared as by the library; metrics for Prometheus with bounded labels and cost, and readiness with reasons beside liveness; callers upload workspaces as tar and download changes as tar and patch; the command line starts its runs in a running service of the same user and version, and sends the token to no other; a dashboard and a unit of systemd fit them; a web page starts, shows, answers, reviews, forks and replays runs, and keeps untrusted text as text; a question that waits reaches signed webhooks and browsers of those who may answer once, also after a restart, with a link that answers that question alone, once',
  ),
  'H.03': now(
    'An ACP agent for editors: sessions are runs that outlive the editor and are shown again from their journals; prompts, plans, tool calls with diffs, thoughts and usage appear as they happen; a permission request is an approval with its scopes, and one that is not answered, or whose question changed, decides nothing; a run works on unsaved text, and newer text is never overwritten; mentioned secrets are not sent; changes are applied in a mode for it or by a choice at the end; each frame that is sent, and each answer, fits the schema of the protocol; an MCP server over stdio and HTTP gives clients of both revisions tools and resources for runs, with the rights of their keys; only the person at a client answers questions, once and for what was shown; no tool approves or applies; chat pages over AG-UI have threads of runs that outlive them, with the rights of their keys and none by their messages, and answer an interrupt for what it showed or not at all; other agents over A2A have tasks that are runs, see no others, and approve nothing by words or without a key for it; an extension for VS Code lists and follows runs, starts them with a folder or a selection, takes answers by a choice alone, applies changes by hunk from the diff editor, makes no link or command of what a run says, keeps its token in the secret storage, and takes the service and its program from no workspace',
    'MCP servers of the editor that are programs or have headers, forks of sessions, and version 2 of the protocol',
  ),
  'H.04': later(
    'A fleet on a queue: many machines, retries, priorities, and recovery of stalled jobs',
    'comes later',
  ),
  // Errors
  'E.01': now(
    'Whatever the library throws is a CaissonError with a code of a closed list that specs/errors.md explains, also for arguments of a wrong type; only the runtime throws the reason of the caller’s own signal',
  ),
  'E.02': now(
    'Each code has one exit code and one reason of a run; the same damage has the same exit code in every command',
  ),
}
