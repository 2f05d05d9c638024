/** The page of `caisson serve`: draws runs, questions and changes of the service that it came from. */
import './shell/no-eval.ts'

import { render } from 'preact'
import { App } from './shell/app.tsx'
import { takeTokenFromAddress } from './shell/session.ts'
import { applyTheme, storedTheme } from './shell/theme.ts'
import './app.css'

applyTheme(storedTheme())
takeTokenFromAddress()
const place = document.getElementById('app')
if (place !== null) render(<App />, place)
