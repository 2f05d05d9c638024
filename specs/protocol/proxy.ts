/** What guest and host agree on for connections of programs, beside HTTP/2 itself. */

/**
 * Name of the header that marks an answer as the gateway's own, and of the trailer that says why it ended a tunnel. Taken
 * off whatever a server answers.
 */
export const gatewayErrorHeader = 'caisson-error'
