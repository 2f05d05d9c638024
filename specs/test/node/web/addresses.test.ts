import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { notPublic } from '../../../node/web/addresses.ts'

describe('an address', () => {
  it.each([
    '1.1.1.1',
    '8.8.8.8',
    '93.184.216.34',
    '172.15.0.1',
    '172.32.0.1',
    '100.63.255.255',
    '100.128.0.1',
    '169.253.1.1',
    '2606:4700:4700::1111',
    '2001:4860:4860::8888',
    '64:ff9b::808:808',
    '::ffff:8.8.8.8',
  ])('%s is public [G.02]', (address) => {
    expect(notPublic(address)).toBeNull()
  })

  it.each([
    [
      'this machine',
      [
        '127.0.0.1',
        '127.255.255.255',
        '0.0.0.0',
        '0.1.2.3',
        '::1',
        '::',
        '::ffff:127.0.0.1',
        '64:ff9b::7f00:1',
      ],
    ],
    [
      'a private network',
      [
        '10.0.0.1',
        '172.16.0.1',
        '172.31.255.255',
        '192.168.1.1',
        'fc00::1',
        'fd12:3456::1',
        'fec0::1',
        '::ffff:10.0.0.1',
        '64:ff9b::c0a8:101',
      ],
    ],
    ['the local link', ['169.254.0.1', 'fe80::1', 'fe80::1%eth0', 'febf::1']],
    [
      'metadata',
      [
        '169.254.169.254',
        'fd00:ec2::254',
        '100.100.100.200',
        '168.63.129.16',
        '169.254.170.2',
        '::ffff:169.254.169.254',
        '64:ff9b::a9fe:a9fe',
      ],
    ],
    ['a provider', ['100.64.0.1', '100.127.255.255']],
    ['multicast', ['224.0.0.1', '239.255.255.255', 'ff02::1', 'ff0e::1']],
    ['broadcast', ['255.255.255.255']],
    [
      'a reserved range',
      [
        '192.0.2.1',
        '198.51.100.1',
        '203.0.113.1',
        '198.18.0.1',
        '198.19.255.255',
        '192.0.0.1',
        '192.88.99.1',
        '240.0.0.1',
        '2001:db8::1',
        '3fff::1',
        '100::1',
        '2001:2::1',
        '2001:20::1',
        '5f00::1',
        '4000::1',
        '::7f00:1',
        '::8.8.8.8',
        '64:ff9b:1::808:808',
      ],
    ],
    [
      'inside an IPv6 one',
      ['2002:a00:1::1', '2002:808:808::1', '2001:0:4136:e378:8000:63bf:3fff:fdd2', '::ffff:0:127.0.0.1'],
    ],
  ])('of %s is not public and says so [G.02]', (word, addresses) => {
    for (const address of addresses) expect(notPublic(address), address).toContain(word)
  })

  it.each(['', 'example.com', '1.2.3', '0x7f.1', '1.2.3.4.5', '256.1.1.1', '[::1]', '1.2.3.4/8', ' 1.1.1.1'])(
    'is what %j is not, and so nothing public [G.02]',
    (text) => {
      expect(notPublic(text)).toBe('not an address')
    },
  )

  it('is judged the same inside IPv6 as by itself, and never throws [G.02]', () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        expect(notPublic(`::ffff:${address}`)).toBe(notPublic(address))
        expect(notPublic(`64:ff9b::${address}`) === null).toBe(notPublic(address) === null)
      }),
      { seed: 4, numRuns: 500 },
    )
    fc.assert(
      fc.property(fc.oneof(fc.ipV6(), fc.string({ unit: 'binary' })), (text) => {
        const reason = notPublic(text)
        expect(reason === null || reason.length > 0).toBe(true)
      }),
      { seed: 4, numRuns: 500 },
    )
  })
})
