/** The page of `caisson serve`: draws runs, questions and changes of the service that it came from. */
import { render } from 'preact'
import * as z from 'zod'
import './app.css'
import { App } from './shell/app.tsx'
import { takeTokenFromAddress } from './shell/session.ts'
import { applyTheme, storedTheme } from './shell/theme.ts'

// The policy of the page forbids code from text, which zod would try.
z.config({ jitless: true })
applyTheme(storedTheme())
takeTokenFromAddress()
const place = document.getElementById('app')
if (place !== null) render(<App />, place)
