/** Which policy version sampled each token, as runs in token order: [version, number of tokens]. */
export type VersionRuns = [version: number, count: number][];

/** The runs of the first `count` tokens. */
export function firstRuns(runs: Readonly<VersionRuns>, count: number): VersionRuns {
  let rest = count;
  return runs.flatMap(([version, length]): VersionRuns => {
    const taken = Math.min(length, rest);
    rest -= taken;
    return taken > 0 ? [[version, taken]] : [];
  });
}

/**
 * The runs after `count` more tokens by `version`.
 *
 * @param count tokens; 0 leaves the runs as they are, since a run is never empty.
 * @throws {RangeError} if `version` is lower than the last: a policy never goes back inside a rollout.
 */
export function extendRuns(
  runs: Readonly<VersionRuns>,
  version: number,
  count: number,
): VersionRuns {
  if (count === 0) return [...runs];
  const last = runs.at(-1);
  if (last === undefined || version > last[0]) return [...runs, [version, count]];
  if (version === last[0]) return [...runs.slice(0, -1), [version, last[1] + count]];
  throw new RangeError(`version ${version} sampled after version ${last[0]} in one rollout`);
}
