/**
 * A ticket whose group grew too old while it was sampled travels back to the learner as a dead letter:
 * the one kind that no fault has caused. Its reason begins like this.
 */
const prefix = 'outdated: ';

/**
 * @param oldestToken the version of the group's oldest token.
 * @param smallestUseful the lowest version that can still be trained on.
 */
export function outdatedReason(oldestToken: number, smallestUseful: number): string {
  return `${prefix}sampling began with version ${oldestToken}, and only ${smallestUseful} or newer can still be trained on`;
}

export function isOutdated(reason: string): boolean {
  return reason.startsWith(prefix);
}
