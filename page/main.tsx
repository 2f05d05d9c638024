/** The page of `caisson serve`: draws runs, questions and changes of the service that it came from. */
import './session/no-eval.ts'

import { render } from 'preact'
import { AnswerPage } from './answer-page.tsx'
import { App } from './app.tsx'
import { runAddress } from './session/route.ts'
import { takeTokenFromAddress } from './session/session.ts'
import { applyTheme, storedTheme } from './session/theme.ts'
import './styles/base.css'
import './styles/controls.css'
import './styles/frame.css'
import './styles/runs.css'
import './styles/run.css'
import './styles/changes.css'
import './styles/narrow.css'

applyTheme(storedTheme())
const isLink = location.pathname === '/answer'
if (!isLink) takeTokenFromAddress()
// Sent by the worker, when a notification was clicked.
navigator.serviceWorker?.addEventListener('message', ({ data }) => {
  const { run } = Object(data) as { run?: unknown }
  if (/^run-[0-9a-f]{20}$/.test(String(run))) location.hash = runAddress(String(run))
})
const place = document.getElementById('app')
if (place !== null) render(isLink ? <AnswerPage /> : <App />, place)
