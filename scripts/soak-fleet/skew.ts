// Loaded before a host: moves its clock by CAISSON_SOAK_SKEW_MS. Timers do not follow the clock, so they stay right.
const shift = Number(process.env.CAISSON_SOAK_SKEW_MS ?? 0)
const RealDate = Date
const now = () => RealDate.now() + shift

globalThis.Date = new Proxy(RealDate, {
  apply: () => new RealDate(now()).toString(),
  construct: (target, given: unknown[], newTarget) =>
    Reflect.construct(target, given.length === 0 ? [now()] : given, newTarget) as Date,
  get: (target, key) => (key === 'now' ? now : (Reflect.get(target, key) as unknown)),
})
