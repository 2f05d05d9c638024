/**
 * Runs Python code without a file: it arrives on standard input, under a name that lets tracebacks quote its lines. A
 * file in the workspace would become part of the run's changes.
 */

/** Name of the code in tracebacks. */
const PYTHON_CODE_NAME = '<code>'

/** Runs in `__main__`, so that pickle and multiprocessing find the code's definitions; adds no other name. */
const RUNNER = `
def _run():
    import linecache, sys, traceback
    name = '${PYTHON_CODE_NAME}'
    text = sys.stdin.buffer.read().decode()
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    def show(kind, error, trace):
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)
    sys.excepthook = show
    sys.argv[0] = name
    code = compile(text, name, 'exec', dont_inherit=True)
    del globals()['_run']
    exec(code, globals())
_run()
`

/** The command that runs its standard input, with `args` as sys.argv[1:]. */
export function pythonCommand(args: readonly string[]): string[] {
  return ['python3', '-c', RUNNER, ...args]
}
