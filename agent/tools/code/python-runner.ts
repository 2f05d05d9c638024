/**
 * Runs Python code without a file: it arrives on standard input, under a name that lets tracebacks quote its lines. A
 * file in the workspace would become part of the run's changes. The run's tools are functions of `tools`.
 */
import { channelVariable } from './program-channel.ts'

/** Name of the code in tracebacks. */
const PYTHON_CODE_NAME = '<code>'

/**
 * The module `tools`. It connects before the code begins, and loads what it needs with the first call: most programs
 * make none. A module of the workspace with this name goes first for `import`.
 */
const TOOLS = `
def _open_tools(place):
    import _socket, _thread, os, sys
    from types import ModuleType

    class ToolError(Exception):
        """A call that failed, with code, message and retryable."""

        def __init__(self, code, message, retryable=False):
            super().__init__(f'{code}: {message}')
            self.code, self.message, self.retryable = code, message, retryable

    ToolError.__module__, ToolError.__qualname__ = 'tools', 'ToolError'
    owner = os.getpid()
    name, token = place.split(' ')
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect('\\0' + name)
        connection.send(token.encode() + b'\\n')
    except OSError:
        connection.close()

    def begin():
        import itertools, json, threading
        numbers, waiting, sending, over = itertools.count(1), {}, threading.Lock(), threading.Event()
        gone = {'error': {'code': 'unavailable', 'message': 'tools cannot be called any more', 'retryable': False}}

        def read():
            rest = bytearray()
            while True:
                try:
                    piece = connection.recv(65536)
                except OSError:
                    piece = b''
                if not piece:
                    break
                rest += piece
                *lines, rest = rest.split(b'\\n')
                for line in lines:
                    answer = json.loads(line)
                    settle(answer.pop('id'), answer)
            over.set()
            for number in list(waiting):
                settle(number, gone)

        def settle(number, answer):
            slot = waiting.pop(number, None)
            if slot is not None:
                slot[1] = answer
                slot[0].set()

        def ask(message):
            if os.getpid() != owner:
                raise ToolError('unavailable', 'only the program itself calls tools, not a process that it started')
            number, slot = next(numbers), [threading.Event(), gone]
            line = json.dumps({'id': number, **message}).encode() + b'\\n'
            waiting[number] = slot
            try:
                with sending:
                    while line:
                        line = line[connection.send(line):]
            except OSError:
                settle(number, gone)
            if over.is_set():
                settle(number, gone)
            slot[0].wait()
            if 'error' in slot[1]:
                raise ToolError(**slot[1]['error']) from None
            return slot[1]['value']

        def define(spec):
            called, parameters = spec['name'], spec['parameters']

            def function(*values, **given):
                if len(values) > len(parameters):
                    raise TypeError(f'{called}() takes at most {len(parameters)} arguments')
                for parameter, value in zip(parameters, values):
                    if parameter in given:
                        raise TypeError(f'{called}() got two values for {parameter!r}')
                    given[parameter] = value
                return ask({'tool': called, 'arguments': json.dumps(given, allow_nan=False)})

            function.__name__ = function.__qualname__ = called
            function.__doc__ = spec['doc']
            function.__module__ = 'tools'
            return function

        threading.Thread(target=read, daemon=True).start()
        for spec in ask({'list': True}):
            module.__dict__[spec['name']] = define(spec)
            module.__dict__.setdefault(spec['name'].replace('-', '_'), module.__dict__[spec['name']])
            names.append(spec['name'])

    names, starting = [], _thread.allocate_lock()

    def prepare():
        with starting:
            if not names:
                begin()

    class Tools(ModuleType):
        def __getattr__(self, wanted):
            if not wanted.startswith('__'):
                prepare()
                if wanted in self.__dict__:
                    return self.__dict__[wanted]
            raise AttributeError(f'there is no tool {wanted}; the tools are ' + ', '.join(names))

        def __dir__(self):
            prepare()
            return [*names, 'ToolError']

    module = Tools('tools', 'The tools of this run as functions; results are data, failures raise ToolError.')
    module.ToolError = ToolError

    class Finder:
        def find_spec(self, wanted, path=None, target=None):
            if wanted != 'tools':
                return None
            from importlib.machinery import ModuleSpec
            return ModuleSpec('tools', self)

        def create_module(self, spec):
            return module

        def exec_module(self, loaded):
            pass

    sys.meta_path.append(Finder())
    return module
`

/**
 * Compiles code so that tracebacks quote its lines, and show none of the runner's. Modules of the workspace do not stand in
 * for those that this needs.
 */
export const COMPILE = `
def _compile(text):
    import sys
    first = sys.path.pop(0)
    import linecache, traceback
    sys.path.insert(0, first)
    name = '${PYTHON_CODE_NAME}'
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    def show(kind, error, trace):
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)
    sys.excepthook = show
    sys.argv[0] = name
    return compile(text, name, 'exec', dont_inherit=True)
`

/** Runs in `__main__`, so that pickle and multiprocessing find the code's definitions; adds no name but `tools`. */
const RUNNER = `${TOOLS}${COMPILE}
def _run():
    import os, sys
    code = _compile(sys.stdin.buffer.read().decode())
    place = os.environ.pop('${channelVariable}', None)
    if place is not None:
        globals()['tools'] = _open_tools(place)
    del globals()['_run'], globals()['_compile'], globals()['_open_tools']
    exec(code, globals())
_run()
`

/** The command that runs its standard input, with `args` as sys.argv[1:]. */
export function pythonCommand(args: readonly string[]): string[] {
  return ['python3', '-c', RUNNER, ...args]
}
