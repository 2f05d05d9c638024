/** Sections of the context that an application or a hook gives: their name, source, text, budget and place. */
import * as z from 'zod'
import { Count, Document, Line, Text } from './text.ts'

/** A name stands in a tag of the prompt, which it must not end. */
export const SectionName = Line.min(1)
  .max(100)
  .regex(/^[^<>]*$/, 'expected no "<" and no ">"')

/** The text is cut to about as many tokens. */
export const SectionTokens = z.int().min(1).max(100_000)
export const sectionDefaultTokens = 4_000

/** `before`: ahead of what the workspace, skills and memory say; `after`: behind it. */
export const SectionPlace = z.enum(['before', 'after'])
export type SectionPlace = z.infer<typeof SectionPlace>

export const sectionsMaxCount = 32

/** A section that all requests of a run have. */
export const RunSection = z.strictObject({
  name: SectionName,
  /** Who gave it. */
  from: SectionName,
  text: Document,
  maxTokens: SectionTokens,
  place: SectionPlace,
})
export type RunSection = z.infer<typeof RunSection>

/** The same as a caller of the service gives it, under its name. */
export const RunSectionInput = z.strictObject({
  text: Document,
  /** Absent: 4,000. */
  maxTokens: SectionTokens.optional(),
  /** Absent: `before`. */
  place: SectionPlace.optional(),
  /** Who gave it. Absent: the application. */
  from: SectionName.optional(),
})

/** A section that a hook gives before a request. */
export const TurnSection = z.strictObject({
  name: SectionName,
  text: Text,
  /** Absent: {@link sectionDefaultTokens}. */
  maxTokens: SectionTokens.optional(),
})
export type TurnSection = z.infer<typeof TurnSection>

/** The same with the hook that gave it, by the word of the host. */
export const GivenTurnSection = z.strictObject({ ...TurnSection.shape, from: SectionName })
export type GivenTurnSection = z.infer<typeof GivenTurnSection>

export const turnSectionsMaxCount = 8

/** What of a section a model gets. */
export const ShownSection = z.strictObject({
  name: SectionName,
  from: SectionName,
  /** Length of the whole text. */
  chars: Count,
  /** Length of what the model gets; less than `chars` where it was cut. */
  shownChars: Count,
})
export type ShownSection = z.infer<typeof ShownSection>
