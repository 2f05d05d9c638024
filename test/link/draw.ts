/** Numbers below `max`, the same for each seed. */
export function createDraw(seed: number): (max: number) => number {
  let state = seed
  return (max) => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31
    return Math.floor((state / 2 ** 31) * max)
  }
}
