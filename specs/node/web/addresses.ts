/** Which addresses are on the public internet. What is not plainly public is not: a range that nobody knows counts as inside. */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/** Where clouds tell a machine its own credentials. */
const metadata = new Set([
  '169.254.169.254',
  '169.254.170.2',
  '100.100.100.200',
  '168.63.129.16',
  'fd00:ec2::254',
])

const words: Readonly<Record<string, string>> = {
  unspecified: 'this machine (unspecified)',
  loopback: 'this machine (loopback)',
  private: 'a private network',
  uniqueLocal: 'a private network',
  deprecatedSiteLocal: 'a private network',
  linkLocal: 'the local link',
  carrierGradeNat: 'a provider’s inner network',
  multicast: 'multicast',
  broadcast: 'broadcast',
  '6to4': 'an IPv4 address inside an IPv6 one (6to4)',
  teredo: 'an IPv4 address inside an IPv6 one (Teredo)',
  rfc6145: 'an IPv4 address inside an IPv6 one',
}

/**
 * What an address is instead of a public one, in words; null when it is public.
 * @param address IPv4 in four decimals or IPv6 without brackets; anything else counts as not public
 */
export function notPublic(address: string): string | null {
  const [plain = '', zone] = address.split('%')
  const family = isIP(plain)
  if (family === 0) return 'not an address'
  // The library takes ::1.2.3.4 for the IPv4 address in it, the system does not: in hexadecimal there is one reading.
  const parsed = ipaddr.process(family === 4 ? plain : new URL(`http://[${plain}]`).hostname.slice(1, -1))
  if (metadata.has(parsed.toString())) return 'a cloud’s metadata service'
  if (zone !== undefined) return 'the local link'
  return parsed instanceof ipaddr.IPv6 ? notPublic6(parsed) : notPublic4(parsed)
}

/**
 * The same of a host before anything is looked up: addresses, and names that mean this machine by definition (RFC 6761).
 * Any other name is null, wherever it leads.
 */
export function hostInside(host: string): string | null {
  if (host === 'localhost' || host.endsWith('.localhost')) return 'this machine'
  return isIP(host) === 0 ? null : notPublic(host)
}

/** The IPv4 address that a network without IPv4 reaches under this IPv6 one (NAT64); null for any other. */
export function behindNat64(address: string): string | null {
  if (isIP(address) !== 6 || address.includes('%')) return null
  const parsed = ipaddr.IPv6.parse(address)
  return parsed.match(nat64) ? lastFourBytes(parsed) : null
}

/** Bits of the widest networks that can be a home's, an office's or a data centre's own; what is wider is a way to all of it. */
const ownMinBits = { ipv4: 16, ipv6: 48 } as const

/**
 * Whether a public address is on the network that an interface of this machine is on.
 * @param cidr of the interface, such as `2001:db8::5/64`
 */
export function isBeside(address: string, cidr: string): boolean {
  if (isIP(address) === 0 || !ipaddr.isValidCIDR(cidr)) return false
  const parsed = ipaddr.parse(address)
  const [network, bits] = ipaddr.parseCIDR(cidr)
  return (
    parsed.kind() === network.kind() && bits >= ownMinBits[parsed.kind()] && parsed.match([network, bits])
  )
}

function lastFourBytes(address: ipaddr.IPv6): string {
  return ipaddr.fromByteArray(address.toByteArray().slice(12)).toString()
}

function notPublic4(address: ipaddr.IPv4): string | null {
  const range = address.range()
  return range === 'unicast' ? null : (words[range] ?? 'a reserved range')
}

/** The only block that was ever given out for the internet. */
const internet6 = ipaddr.IPv6.parseCIDR('2000::/3')
const nat64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96')

function notPublic6(address: ipaddr.IPv6): string | null {
  // Networks without IPv4 give every IPv4 host such an address: it is what the one inside is.
  if (address.match(nat64)) {
    const inside = notPublic(lastFourBytes(address))
    return inside === null ? null : `${inside}, inside an IPv6 address`
  }
  const range = address.range()
  if (range !== 'unicast') return words[range] ?? 'a reserved range'
  return address.match(internet6) ? null : 'a reserved range'
}
