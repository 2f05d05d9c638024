// Sends each question by e-mail, as plain text, through an SMTP server.
import { createTransport } from 'nodemailer'
import { type Deliver, RefusedError, requireVariable, start } from './receiver.ts'
import { linesOf } from './words.ts'

const timeoutMs = 10_000
const subjectMaxChars = 120

function deliverByMail(url: string, from: string, to: string): Deliver {
  const times = { connectionTimeout: timeoutMs, greetingTimeout: timeoutMs, socketTimeout: timeoutMs }
  const transport = createTransport({ url, ...times, disableFileAccess: true, disableUrlAccess: true })
  return async (question) => {
    const lines = linesOf(question)
    const subject = `Caisson: ${lines[0] ?? 'a question'}`.replaceAll(/\s+/g, ' ').slice(0, subjectMaxChars)
    // One message has one id, so that a mail program shows a double once.
    const messageId = `<${question.id.replaceAll(/[^\w-]/g, '')}@caisson>`
    try {
      await transport.sendMail({ from, to, subject, messageId, text: lines.join('\n\n') })
    } catch (error) {
      // The message of the error may have what the server said about the account.
      const { responseCode } = error as { responseCode?: number }
      const said = `the mail server ${responseCode === undefined ? 'does not answer' : `answered ${responseCode}`}`
      throw new (responseCode !== undefined && responseCode >= 500 ? RefusedError : Error)(said)
    }
  }
}

start(deliverByMail(requireVariable('SMTP_URL'), requireVariable('MAIL_FROM'), requireVariable('MAIL_TO')))
