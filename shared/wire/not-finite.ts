/**
 * A group whose logprobs are no numbers cannot be sent. Its ticket travels back to the learner as a dead
 * letter whose reason begins like this, since it may be the policy that is broken.
 */
const prefix = 'not finite: ';

/** @param version of the policy that drew the token whose logprob is no number. */
export function notFiniteReason(version: number): string {
  return `${prefix}policy version ${version} drew tokens whose logprobs are no finite numbers`;
}

/** The policy version that a death lays the blame on; undefined if the ticket died of something else. */
export function versionNotFinite(reason: string): number | undefined {
  if (!reason.startsWith(prefix)) return undefined;
  const [, version] = /policy version (\d{1,15})\b/.exec(reason) ?? [];
  return version === undefined ? undefined : Number(version);
}
