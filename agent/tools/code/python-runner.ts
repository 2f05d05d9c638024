/**
 * How Python runs code that is in no file: it comes by standard input, under a name that tracebacks can quote lines of.
 * A file in the workspace would become part of what the run has changed.
 */

/** The name of the code in tracebacks. */
export const PYTHON_CODE_NAME = '<code>'

/** Runs in `__main__` itself, so that pickle and multiprocessing find what the code defines; leaves no name behind. */
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

/** The command that runs what it reads, with `args` as sys.argv[1:]. */
export function pythonCommand(args: readonly string[]): string[] {
  return ['python3', '-c', RUNNER, ...args]
}
