/** `caisson/testing`: a scripted model, to test tools and workflows without a real one. */
export type * from '../contract.ts'
