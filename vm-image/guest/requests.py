"""What may be asked of the helper: each operation with its fields, types and bounds.

Refuses unknown operations, unknown or missing fields, and any value out of bounds; decides nothing else.
"""
import json
import re

_MAX_TEXT_BYTES = 128 * 1024 - 1
_MAX_ARGUMENTS = 1024
_MAX_VARIABLES = 256
_MAX_PATH_BYTES = 4095
_MAX_VIEWS = 32
_MIB = 1024 * 1024
# From 1970 to 2100: below and above lies nothing that a clock should be set to.
_TERM = re.compile(r'[A-Za-z0-9][A-Za-z0-9+._-]{0,63}', re.ASCII)
# Part of paths and of a mount's options: nothing that means anything there.
_VIEW = re.compile(r'[a-z0-9][a-z0-9-]{0,31}', re.ASCII)
_VARIABLE = re.compile(r'[A-Za-z_][A-Za-z0-9_]{0,127}', re.ASCII)


class BadRequest(Exception):
    """A request that cannot be served as it stands; names the field, what was expected and what was seen."""


def parse_request(payload):
    """The request in a JSON payload, checked in full: a dict whose `op` names its shape. Raises BadRequest."""
    try:
        request = json.loads(
            payload.decode('utf-8'), object_pairs_hook=_refuse_doubles, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise BadRequest(f'expected JSON in UTF-8: {type(error).__name__}: {str(error)[:200]}') from None
    if not isinstance(request, dict):
        raise BadRequest('expected an object')
    fields = _OPERATIONS.get(request.get('op')) if isinstance(request.get('op'), str) else None
    if fields is None:
        raise BadRequest(f'op: expected one of {", ".join(_OPERATIONS)}; saw {str(request.get("op"))[:40]!r}')
    _check_fields(request, {'op': _check_text, **fields}, '')
    return request


def _refuse_doubles(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError('a field stands twice')
    return value


def _refuse_constant(name):
    raise ValueError(f'{name} is not JSON')


def _check_fields(value, fields, place):
    if not isinstance(value, dict):
        raise BadRequest(f'{place}: expected an object')
    for name in value:
        if name not in fields:
            raise BadRequest(f'{place}{name[:40]!r}: unknown field')
    for name, check in fields.items():
        if name not in value:
            raise BadRequest(f'{place}{name}: missing')
        check(value[name], f'{place}{name}')


def _check_text(value, place, max_bytes=_MAX_TEXT_BYTES):
    if not isinstance(value, str) or '\0' in value:
        raise BadRequest(f'{place}: expected a text without NUL')
    try:
        size = len(value.encode('utf-8'))
    except UnicodeEncodeError:
        raise BadRequest(f'{place}: expected whole characters, saw half a surrogate pair') from None
    if size > max_bytes:
        raise BadRequest(f'{place}: expected at most {max_bytes} bytes, saw {size}')


def _check_boolean(value, place):
    if not isinstance(value, bool):
        raise BadRequest(f'{place}: expected true or false')


def _between(lowest, highest):
    def check(value, place):
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise BadRequest(f'{place}: expected a whole number from {lowest} to {highest}')

    return check


def _check_argv(value, place, least=1):
    if not isinstance(value, list) or not least <= len(value) <= _MAX_ARGUMENTS:
        raise BadRequest(f'{place}: expected {least} to {_MAX_ARGUMENTS} texts')
    for index, argument in enumerate(value):
        _check_text(argument, f'{place}[{index}]')
    if value and value[0] == '':
        raise BadRequest(f'{place}[0]: expected the name of a program')


def _check_environment(value, place):
    if not isinstance(value, dict) or len(value) > _MAX_VARIABLES:
        raise BadRequest(f'{place}: expected an object of at most {_MAX_VARIABLES} texts')
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            raise BadRequest(f'{place}: {name[:40]!r} is not the name of a variable')
        _check_text(text, f'{place}.{name}')


def _check_directory(value, place):
    _check_text(value, place, _MAX_PATH_BYTES)
    if value.startswith('/') or '..' in value.split('/'):
        raise BadRequest(f'{place}: expected a path below the workspace, without a leading / and without ..')


def _check_limits(value, place):
    _check_fields(value, _LIMITS, f'{place}.')


def _check_optional_argv(value, place):
    _check_argv(value, place, least=0)


def _check_terminal(value, place):
    if value is not None:
        _check_fields(value, _TERMINAL, f'{place}.')


def _check_view(value, place):
    _check_text(value, place)
    if not _VIEW.fullmatch(value):
        raise BadRequest(f'{place}: expected 1 to 32 of a-z, 0-9 and -; saw {value[:40]!r}')


def _check_views(value, place):
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_VIEWS:
        raise BadRequest(f'{place}: expected 1 to {_MAX_VIEWS} texts')
    for index, view in enumerate(value):
        _check_view(view, f'{place}[{index}]')
    if len(set(value)) < len(value):
        raise BadRequest(f'{place}: expected each once')


def _check_view_or_none(value, place):
    if value is not None:
        _check_view(value, place)


def _check_term(value, place):
    _check_text(value, place)
    if not _TERM.fullmatch(value):
        raise BadRequest(f'{place}: {value[:40]!r} is not the name of a type of terminal')


_LIMITS = {
    'wallMs': _between(1, 24 * 3600 * 1000),
    'memoryBytes': _between(4 * _MIB, 1024 * 1024 * _MIB),
    'pids': _between(4, 8192),
    'cpuPercent': _between(1, 25_600),
}

_TERMINAL = {
    'columns': _between(1, 0xFFFF),
    'rows': _between(1, 0xFFFF),
    'term': _check_term,
}

_OPERATIONS = {
    'workspace_mount': {'readOnly': _check_boolean},
    'workspace_reset': {'keepHome': _check_boolean},
    'view_open': {'ids': _check_views, 'source': _check_view_or_none},
    'view_close': {'ids': _check_views},
    'exec': {
        'argv': _check_argv,
        'view': _check_view_or_none,
        'cwd': _check_directory,
        'env': _check_environment,
        'stdin': _check_boolean,
        'limits': _check_limits,
    },
    'shell': {'argv': _check_optional_argv, 'env': _check_environment, 'terminal': _check_terminal},
    'status': {},
}
