/**
 * What the offline model does by a Python script of its own besides counting and calculating: one row for each, with its
 * wording in instructions. A script prints its answer after `ANSWER: `, or why there is none after `FAILED: `.
 */

import { columnChores } from './column-figures.ts'

/** Extensions by the words that people use for kinds of files. */
const extensions: Readonly<Record<string, string>> = {
  python: 'py',
  javascript: 'js mjs cjs jsx',
  typescript: 'ts tsx mts cts',
  markdown: 'md markdown',
  text: 'txt',
  shell: 'sh bash',
  image: 'png jpg jpeg gif svg webp bmp',
  video: 'mp4 mov avi mkv webm',
  audio: 'mp3 wav ogg flac m4a',
  temporary: 'tmp temp',
  backup: 'bak orig old~',
  yaml: 'yaml yml',
  html: 'html htm',
  rust: 'rs',
  ruby: 'rb',
  source:
    'py js mjs cjs jsx ts tsx mts cts sh bash c h cc cpp hpp cs java kt go rs rb php swift scala lua pl r sql html css scss vue svelte',
}
const sameKinds: Readonly<Record<string, string>> = {
  code: 'source',
  picture: 'image',
  photo: 'image',
  screenshot: 'image',
  temp: 'temporary',
  bash: 'shell',
}
const plainExtensions = new Set([
  ...Object.values(extensions).flatMap((list) => list.split(' ')),
  ...'log json csv tsv xml pdf toml ini cfg conf lock css map doc docx xls xlsx zip gz tar jar class pyc o'.split(
    ' ',
  ),
])

/** The kind, or the pattern, of files that a word names: `image`, `*.py`; null when it names none. */
export function kindOfFiles(word: string): string | null {
  if (/^(\*?\.[\w.-]+|.*\*.*)$/.test(word)) return word.startsWith('.') ? `*${word}` : word
  const lower = word.toLowerCase()
  for (const kind of [lower, lower.replace(/s$/, '')]) {
    const known = sameKinds[kind] ?? kind
    const list = Object.hasOwn(extensions, known) ? extensions[known]?.split(' ') : undefined
    if (list !== undefined) return list.length === 1 ? `*.${list[0]}` : known
    if (plainExtensions.has(kind)) return `*.${kind}`
  }
  return null
}

/** The file patterns of a result of {@link kindOfFiles}. */
export function patternsOf(kind: string): readonly string[] {
  return Object.hasOwn(extensions, kind)
    ? (extensions[kind] ?? '').split(' ').map((extension) => `*.${extension}`)
    : [kind]
}

interface Chore {
  /** The instructions of its step. */
  readonly sentence: string
  readonly code: string
  /** Which field names what it writes; `*` for any path. */
  readonly writes?: 'path' | 'to' | '*'
}

const lines = (sentence: string, made: string, said: string): Chore => ({
  sentence,
  writes: 'path',
  code: `
text = text_of(PATH)
before = text.splitlines()
after = ${made}
write(PATH, ''.join(line + '\\n' for line in after))
say('${said}' % (plural(len(before), 'lines'), PATH, plural(len(after), 'lines')))`,
})

const moveOrCopy = (word: string, past: string, act: string): Chore => ({
  sentence: `${word} every file named {pattern} in {path} into the folder {to}.`,
  writes: '*',
  code: `
found = [path for path in found_files() if os.path.dirname(path) != os.path.normpath(TO)]
places = [os.path.join(os.path.normpath(TO), os.path.basename(path)) for path in found]
taken = sorted(set(place for place in places if os.path.exists(place) or places.count(place) > 1))
if taken:
    fail('nothing was changed, as several files would become %s.' % ', '.join(taken[:10]))
os.makedirs(TO, exist_ok=True)
for path, place in zip(found, places):
    ${act}(path, place)
say('${past} %s into %s.' % (plural(len(found), 'files'), TO))
listed('%s' % place for place in places)`,
})

/** A program of the project, chosen by the files that are here. */
const job = (sentence: string, name: string, missing: string, choices: string): Chore => ({
  sentence,
  writes: '*',
  code: `
choices = [${choices}]
command = next((command for test, command in choices if test), None)
if command is None:
    fail('${missing}')
if shutil.which(command[0]) is None:
    fail('this needs the program %s, which is not installed.' % command[0])
ran = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
output = ran.stdout.rstrip().split('\\n')
say('Ran %s:' % ' '.join(command))
if len(output) > 80:
    say('[%d lines before]' % (len(output) - 80))
say('\\n'.join(output[-80:]))
if ran.returncode != 0:
    fail('%s ended with exit code %d.' % (' '.join(command), ran.returncode))
if ${name} and re.search(r'^Ran 0 tests|^# tests 0$|^. tests 0$', ran.stdout, re.M):
    fail('no tests were found.')`,
})

export const chores = {
  overview: {
    sentence: 'Say what the project is.',
    code: `
readme = next((name for name in sorted(os.listdir('.')) if re.match(r'readme(\\.|$)', name, re.I) and os.path.isfile(name)), None)
if readme is None and not package.get('description'):
    fail('there is no README here, and I cannot tell from the code what it does.')
if package.get('description'):
    say('package.json says: %s' % package['description'])
if readme is not None:
    begin = [line for line in text_of(readme).splitlines() if line.strip()][:25]
    say('%s begins:' % readme)
    say('\\n'.join(begin))
counts = collections.Counter(os.path.splitext(path)[1] or 'no extension' for path in files('.'))
say('Here are %s: %s.' % (plural(sum(counts.values()), 'files'), ', '.join('%d %s' % (count, kind) for kind, count in counts.most_common(8))))`,
  },
  'run-tests': job(
    'Run the tests of the project.',
    'True',
    'no tests were found: no test script in package.json, no target test in Makefile, no Cargo.toml, no go.mod, no test_*.py.',
    `('test' in scripts and 'no test specified' not in scripts['test'], ['npm', 'test', '--silent']),
    ('test' in targets, ['make', 'test']), (has('Cargo.toml'), ['cargo', 'test']), (has('go.mod'), ['go', 'test', './...']),
    (tests and importlib.util.find_spec('pytest'), ['python3', '-m', 'pytest', '-q']),
    (tests and os.path.isdir('tests'), ['python3', '-m', 'unittest', 'discover', '-s', 'tests', '-t', '.']),
    (tests, ['python3', '-m', 'unittest', 'discover', '-p', 'test*.py'])`,
  ),
  'build-project': job(
    'Build the project.',
    'False',
    'nothing here says how to build it: no build script in package.json, no Makefile, no Cargo.toml, no go.mod.',
    `('build' in scripts, ['npm', 'run', '--silent', 'build']), (has('Makefile'), ['make']),
    (has('Cargo.toml'), ['cargo', 'build']), (has('go.mod'), ['go', 'build', './...'])`,
  ),
  'lint-project': job(
    'Check the style of the project.',
    'False',
    'nothing here says how to check the style: no lint script in package.json, no target lint in Makefile.',
    `('lint' in scripts, ['npm', 'run', '--silent', 'lint']), ('lint' in targets, ['make', 'lint'])`,
  ),
  'install-dependencies': job(
    'Install the dependencies of the project.',
    'False',
    'nothing here names dependencies: no package.json, no requirements.txt.',
    `(has('package.json'), ['npm', 'install']), (has('requirements.txt'), ['python3', '-m', 'pip', 'install', '-r', 'requirements.txt'])`,
  ),
  changes: {
    sentence: 'Say what changed since the last commit.',
    code: `
status = git('status', '--short')
if status == '':
    say('Nothing changed since the last commit.')
else:
    say('%s changed since the last commit:' % plural(len(status.split('\\n')), 'paths'))
    say(status)
    diff = git('diff', 'HEAD').split('\\n')
    say('\\n'.join(diff[:150]))
    if len(diff) > 150:
        say('[%d more lines]' % (len(diff) - 150))`,
  },
  commits: {
    sentence: 'List the last {text} commits.',
    code: `say(git('log', '-n', TEXT, '--date=short', '--format=%h %ad %an: %s'))`,
  },
  'last-commit': {
    sentence: 'Show the last commit.',
    code: `say(git('log', '-n', '1', '--date=iso', '--stat', '--format=%h of %ad by %an: %s'))`,
  },
  authors: {
    sentence: 'Say who wrote the commits.',
    code: `
say('Commits by author:')
say(git('shortlog', '-s', '-n', 'HEAD'))`,
  },
  branch: {
    sentence: 'Say which branch is checked out.',
    code: `
say('On branch %s. All branches:' % (git('branch', '--show-current') or '(none, a commit is checked out)'))
say(git('branch', '--format=%(refname:short)'))`,
  },
  commit: {
    sentence: 'Commit all changes with the message {text}.',
    writes: '*',
    code: `
if git('status', '--short') == '':
    fail('nothing changed since the last commit, so there is nothing to commit.')
name = subprocess.run(['git', 'config', 'user.email'], capture_output=True).stdout
who = [] if name.strip() else ['-c', 'user.name=Caisson', '-c', 'user.email=caisson@localhost']
git('add', '-A')
git(*who, 'commit', '-q', '-m', TEXT)
say('Committed: ' + git('log', '-n', '1', '--stat', '--format=%h %an: %s'))`,
  },
  largest: {
    sentence: 'Name the {text} largest files in {path}.',
    code: `
sizes = sorted(((os.path.getsize(path), os.path.normpath(path)) for path in files(PATH)), key=lambda item: (-item[0], item[1]))
if not sizes:
    fail('there are no files.')
listed('%s: %s' % (path, plural(size, 'bytes')) for size, path in sizes[:int(TEXT)])`,
  },
  size: {
    sentence: 'Say how large {path} is.',
    code: `
sizes = [os.path.getsize(path) for path in files(PATH)]
say('%s holds %s in %s.' % ('The workspace' if PATH == '.' else PATH, plural(sum(sizes), 'bytes'), plural(len(sizes), 'files')))`,
  },
  duplicates: {
    sentence: 'Find files in {path} with the same content.',
    code: `
groups = collections.defaultdict(list)
for path in files(PATH):
    groups[hashlib.sha256(read(path)).digest()].append(os.path.normpath(path))
same = [group for group in groups.values() if len(group) > 1]
say('%s of files with the same content.' % plural(len(same), 'groups') if same else 'No two files have the same content.')
listed(', '.join(group) for group in same)`,
  },
  exists: {
    sentence: 'Say whether {path} has a file whose name contains {text}.',
    code: `
found = [os.path.normpath(path) for path in files(PATH) if TEXT.lower() in os.path.basename(path).lower()]
say('Yes: %s.' % ', '.join(found[:50]) if found else 'No file here has "%s" in its name.' % TEXT)`,
  },
  version: {
    sentence: 'Say which version of {text} is installed.',
    code: `
programs = {'python': 'python3', 'node.js': 'node', 'nodejs': 'node', 'pip': 'pip3', 'java': 'java', 'rust': 'rustc'}
program = programs.get(TEXT.lower(), TEXT.lower())
if shutil.which(program) is None:
    say('%s is not installed in this VM.' % TEXT)
else:
    ran = subprocess.run([program, 'version' if program == 'go' else '--version'], capture_output=True, text=True)
    say('In this VM: %s' % ((ran.stdout or ran.stderr).strip().split('\\n')[0] or 'no version was printed'))`,
  },
  date: {
    sentence: 'Say the date and the time.',
    code: `say(datetime.datetime.now().astimezone().strftime('It is %A, %Y-%m-%d, %H:%M %Z in this VM.'))`,
  },
  dependencies: {
    sentence: 'Say which dependencies the project names.',
    code: `
found = False
for key in ('dependencies', 'devDependencies', 'peerDependencies', 'optionalDependencies'):
    for name, version in sorted(package.get(key, {}).items()):
        found = True
        say('- %s %s (%s of package.json)' % (name, version, key))
for name in ('requirements.txt', 'go.mod', 'Cargo.toml', 'pyproject.toml', 'Gemfile'):
    if has(name):
        found = True
        say('%s:' % name)
        say('\\n'.join(text_of(name).splitlines()[:60]))
if not found:
    say('No dependencies are named: %s.' % ('package.json has none' if package else 'there is no package.json, requirements.txt, go.mod, Cargo.toml or pyproject.toml'))`,
  },
  languages: {
    sentence: 'Say in which languages the project is written.',
    code: `
counts = collections.Counter()
for path in found_files():
    counts[os.path.splitext(path)[1]] += read(path).count(b'\\n')
listed('%s: %s' % (kind, plural(count, 'lines')) for kind, count in counts.most_common(15))`,
  },
  find: {
    sentence: 'Find every file named {pattern} in {path}.',
    code: `print(MARK + json.dumps(found_files()))`,
  },
  'move-files': moveOrCopy('Move', 'Moved', 'shutil.move'),
  'copy-files': moveOrCopy('Copy', 'Copied', 'shutil.copy2'),
  'replace-in-files': {
    sentence: 'Replace {text} with {to} in every file named {pattern} in {path}.',
    writes: '*',
    code: `
old, changed = TEXT.encode(), []
for path in found_files():
    data = read(path)
    if old in data and b'\\0' not in data:
        changed.append('%s: %s' % (os.path.normpath(path), plural(data.count(old), 'occurrences')))
        with open(path, 'wb') as file:
            file.write(data.replace(old, TO.encode()))
if not changed:
    fail('no file holds "%s"; nothing was changed.' % TEXT)
say('Replaced "%s" with "%s" in %s:' % (TEXT, TO, plural(len(changed), 'files')))
listed(changed)`,
  },
  'sort-lines': lines('Sort the lines of {path}.', 'sorted(before)', 'Sorted the %s of %s; it has %s.'),
  'reverse-sort-lines': lines(
    'Sort the lines of {path} in reverse.',
    'sorted(before, reverse=True)',
    'Sorted the %s of %s in reverse; it has %s.',
  ),
  'unique-lines': lines(
    'Remove repeated lines from {path}.',
    'list(dict.fromkeys(before))',
    'Removed the repeated ones of the %s of %s; it has %s.',
  ),
  'drop-empty-lines': lines(
    'Remove the empty lines from {path}.',
    '[line for line in before if line.strip()]',
    'Removed the empty ones of the %s of %s; it has %s.',
  ),
  'trim-lines': lines(
    'Remove blanks at the ends of the lines of {path}.',
    '[line.rstrip() for line in before]',
    'Removed blanks at the ends of the %s of %s; it has %s.',
  ),
  'first-lines': {
    sentence: 'Show the first {text} lines of {path}.',
    code: `say('\\n'.join(text_of(PATH).splitlines()[:int(TEXT)]))`,
  },
  'last-lines': {
    sentence: 'Show the last {text} lines of {path}.',
    code: `say('\\n'.join(text_of(PATH).splitlines()[-int(TEXT):]))`,
  },
  'format-json': {
    sentence: 'Indent the JSON of {path}.',
    writes: 'path',
    code: `
write(PATH, json.dumps(parsed(PATH), indent=2, ensure_ascii=False) + '\\n')
say('Indented %s.' % PATH)`,
  },
  'check-json': {
    sentence: 'Say whether {path} is valid JSON.',
    code: `
parsed(PATH)
say('%s is valid JSON.' % PATH)`,
  },
  'csv-to-json': {
    sentence: 'Convert {path} to JSON in {to}.',
    writes: 'to',
    code: `
def typed(text):
    return json.loads(text) if re.fullmatch(r'-?(0|[1-9]\\d{0,14})(\\.\\d{1,12})?', text) else text
rows = list(csv.DictReader(io.StringIO(text_of(PATH), newline='')))
if any(None in row or None in row.values() for row in rows):
    fail('the rows of %s do not all have as many fields as its header.' % PATH)
if os.path.exists(TO):
    fail('%s exists already; nothing was changed.' % TO)
write(TO, json.dumps([{key: typed(value) for key, value in row.items()} for row in rows], indent=2, ensure_ascii=False) + '\\n')
say('Wrote %s of %s to %s.' % (plural(len(rows), 'rows'), PATH, TO))`,
  },
  ...columnChores,
  zip: {
    sentence: 'Compress {path} into {to}.',
    writes: 'to',
    code: `
if os.path.exists(TO):
    fail('%s exists already; nothing was changed.' % TO)
held = [path for path in files(PATH)]
with zipfile.ZipFile(TO, 'w', zipfile.ZIP_DEFLATED) as archive:
    for path in held:
        archive.write(path, os.path.normpath(path))
say('Compressed %s into %s (%s).' % (plural(len(held), 'files'), TO, plural(os.path.getsize(TO), 'bytes')))`,
  },
} as const satisfies Record<string, Chore>

export type ChoreName = keyof typeof chores

export const choreNames = Object.keys(chores) as ChoreName[]

/** Whether the field of a chore, or anything, is written. */
export function choreWrites(chore: ChoreName): Chore['writes'] {
  return (chores[chore] as Chore).writes
}
