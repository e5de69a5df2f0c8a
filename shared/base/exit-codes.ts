/** How a service ended, for those who started it. 0: well. 1: it crashed, and may be tried again. */

/** The user has something to change: trying again cannot help. */
export const userErrorCode = 2;

/**
 * Training was given up, because it diverged or no group tells it anything any more; what was good is
 * saved. Trying again with the same settings will not help.
 */
export const givenUpCode = 3;
