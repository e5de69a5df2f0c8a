/** Exit codes of a service for its launcher. 0: success. 1: crash, may be retried. */

/** The user must change something; retrying cannot help. */
export const userErrorCode = 2;

/**
 * Training was stopped because it diverged or no group gave a training signal; the last good state is saved.
 * Retrying with the same settings will not help.
 */
export const givenUpCode = 3;
