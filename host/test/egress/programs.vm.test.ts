import { describe, expect, it } from 'vitest'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { startPackageServer } from '../support/package-server.ts'
import { testBench } from '../support/runs.ts'

const rules: EgressRule[] = [{ effect: 'allow', host: 'packages.test', schemes: ['https', 'http'] }]

/** Each program gives a line: its name, and the last line of what it said. */
const works = `
say() { name=$1; shift; echo "$name: $("$@" 2>&1 | tail -n 1)"; }
export GIT_SSL_CAINFO=$PWD/authority.crt SSL_CERT_FILE=$PWD/authority.crt NODE_EXTRA_CA_CERTS=$PWD/authority.crt
say 'curl https' curl -sS --cacert authority.crt https://packages.test/hello
say 'curl http' curl -sS http://packages.test/hello
git clone -q https://packages.test/repo.git /tmp/repo
say git cat /tmp/repo/README
say 'python https' python3 -c "import urllib.request as r; print(r.urlopen('https://packages.test/hello').read().decode())"
say 'python http' python3 -c "import urllib.request as r; print(r.urlopen('http://packages.test/hello').read().decode())"
say 'node https' node -e "fetch('https://packages.test/hello').then((r) => r.text()).then(console.log)"
say 'node http' node -e "fetch('http://packages.test/hello').then((r) => r.text()).then(console.log)"
`

/** Two commands: under emulation each takes its time. */
const installs = {
  pip: `
pip install -q --cert authority.crt --index-url https://packages.test/simple/ caisson-demo
echo "pip: $(python3 -c 'import caisson_demo; print(caisson_demo.WORD)' 2>&1 | tail -n 1)"
`,
  npm: `
export NODE_EXTRA_CA_CERTS=$PWD/authority.crt
mkdir /tmp/npm && cd /tmp/npm
npm install --silent --registry https://packages.test/npm/ caisson-demo
echo "npm: $(node -e "console.log(require('caisson-demo'))" 2>&1 | tail -n 1)"
`,
}

/** Each line: the name, the exit code (124: it hung), and the last line of what it said. */
const fails = `
try() { name=$1; shift; said=$(timeout 30 "$@" 2>&1); echo "$name: exit $? $(echo "$said" | tail -n 1)"; }
py() { name=$1; shift; try "$name" python3 -c "import socket; $*"; }
try tunnel curl -sS https://other.test/
try plain curl -sS --fail-with-body http://other.test/
try python python3 -c "import urllib.request as r; r.urlopen('https://other.test/')"
try git git clone -q https://other.test/x.git /tmp/x
try port curl -sS https://packages.test:8443/
try name curl -sSk --connect-to other.test:443:packages.test:443 https://other.test/
try ssh curl -sS -m 20 telnet://packages.test:22
try direct-address curl -sS --noproxy '*' http://192.0.2.1/
try direct-name curl -sS --noproxy '*' https://packages.test/
try other-proxy curl -sS -x http://192.0.2.7:3128 https://packages.test/
try socks curl -sS -x socks5h://127.0.0.1:3128 https://packages.test/
try six curl -sS -g --noproxy '*' 'http://[2001:db8::1]/'
try tcp bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'
py udp "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.53', 53))"
py dns "socket.getaddrinfo('packages.test', 443)"
py raw "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"
py packet "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"
try model curl -sS -f http://gateway/v1/models
try model-tunnel curl -sS -k https://gateway/v1/models
try changes curl -sS -f -d x http://gateway:80/changes/run-00000000000000000000
try metadata curl -sS -f http://169.254.169.254/latest/meta-data/
try this-machine curl -sS -f -x http://127.0.0.1:3128 http://127.0.0.1:22/
`

describe('programs in a real VM', () => {
  it('reach what a rule allows: curl, git, Python and Node, in the clear and over TLS [S1.14 G.02]', async () => {
    await using server = await startPackageServer()
    const files = { 'works.sh': works, 'authority.crt': server.authority.ca }
    const bench = await testBench(files, server.env)
    const { events, state } = await bench.run('Run the command `bash works.sh`', { egress: { rules } })
    const output = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : [])).join('\n')
    expect(output).not.toContain('[no connection')
    expect(state.end?.outcome).toBe('completed')
    expect(output.split('\n')).toEqual(
      expect.arrayContaining([
        'curl https: hello from outside',
        'curl http: hello from outside',
        'git: git works',
        'python https: hello from outside',
        'python http: hello from outside',
        'node https: hello from outside',
        'node http: hello from outside',
      ]),
    )
    const ends = events.flatMap((event) => (event.type === 'egress-end' ? [event] : []))
    const whole = ends.filter(({ error }) => error === undefined)
    expect(whole).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ kind: 'tunnel', target: 'CONNECT packages.test:443' }),
        expect.objectContaining({ kind: 'http', target: 'GET http://packages.test/hello' }),
      ]),
    )
    for (const { bytesIn, rule } of whole) {
      expect(bytesIn).toBeGreaterThan(0)
      expect(rule).toContain('packages.test')
    }
    expect(new Set(server.connections)).toEqual(new Set(['packages.test:443', 'packages.test:80']))
  })

  it.each(['pip', 'npm'] as const)(
    'install what %s may fetch, from the image as it is [S1.14 G.02]',
    {
      timeout: 300_000,
    },
    async (name) => {
      await using server = await startPackageServer()
      const files = { 'install.sh': installs[name], 'authority.crt': server.authority.ca }
      const bench = await testBench(files, server.env)
      const { events } = await bench.run('Run the command `bash install.sh`', { egress: { rules } })
      const output = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : [])).join('\n')
      expect(output.split('\n')).toContain(`${name}: ${name} works`)
      expect(new Set(server.connections)).toEqual(new Set(['packages.test:443']))
    },
  )

  it('find no other way: every other attempt fails at once and says why [S1.14 G.02 G.03]', async () => {
    await using server = await startPackageServer()
    const bench = await testBench({ 'fails.sh': fails }, server.env)
    const { events } = await bench.run('Run the command `bash fails.sh`', { egress: { rules } })
    const output = events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : [])).join('\n')
    const lines = output.split('\n')
    const attempts = fails.match(/^(?:try|py) [a-z-]+/gm) ?? []
    for (const attempt of attempts) {
      const name = attempt.split(' ')[1] ?? ''
      const line =
        lines.find((one) => one.startsWith(`${name}: exit `)) ?? `${name} is missing in:\n${output}`
      expect(line).toMatch(/: exit (?!0 |124 )\d+ /)
    }
    const said = (name: string): string => lines.find((line) => line.startsWith(`${name}: `)) ?? ''
    expect(said('plain')).toContain('no rule allows it')
    expect(said('python')).toContain('no rule allows it')
    // curl and git hide why, so the tool's result says it.
    for (const target of ['CONNECT other.test:443', 'CONNECT packages.test:8443'])
      expect(output).toMatch(new RegExp(`\\[no connection: ${target}: no rule allows it.*request_access`))
    expect(output).toContain('its TLS asks for other.test')
    const denied = events.flatMap((event) => (event.type === 'egress-denied' ? [event.target] : []))
    expect(denied).toEqual(
      expect.arrayContaining([
        'CONNECT other.test:443',
        'GET http://other.test/',
        'CONNECT packages.test:8443',
        'GET http://169.254.169.254/latest/meta-data/',
      ]),
    )
    expect(server.asked).toEqual([])
  })
})
