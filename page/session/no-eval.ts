/** Imported before any schema: the policy of the page forbids code from text, which zod would try. */
import * as z from 'zod'

z.config({ jitless: true })
