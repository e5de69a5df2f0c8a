/**
 * An order of tickets for an oracle. Groups whose longest answer delays training come first, the longest ones
 * before the others: then the groups of one step need about the same time, and one delay serves them all. The other
 * groups keep their order.
 *
 * @param tickets number of tickets, and of problems.
 * @param longestOf seconds of the longest answer to a problem.
 * @param fits seconds up to which an answer delays nothing.
 * @returns [tickets] problems.
 */
export function tailFirst(
  tickets: number,
  longestOf: (problem: number) => number,
  fits: number,
): number[] {
  const longest = Array.from({ length: tickets }, (_, problem) => longestOf(problem));
  const problems = [...longest.keys()];
  return [
    ...sortedLongestFirst(
      problems.filter((problem) => longest[problem]! > fits),
      longest,
    ),
    ...problems.filter((problem) => longest[problem]! <= fits),
  ];
}

/**
 * An order of tickets by expected length. The problems keep their places but for those within each run of
 * `lookahead`, where the longest comes first.
 *
 * @param tickets number of tickets, and of problems.
 * @param expectedOf expected seconds of the longest answer to a problem.
 * @returns [tickets] problems.
 */
export function expectedLongestFirst(
  tickets: number,
  expectedOf: (problem: number) => number,
  lookahead: number,
): number[] {
  const expected = Array.from({ length: tickets }, (_, problem) => expectedOf(problem));
  const problems = [...expected.keys()];
  const runs = Math.ceil(tickets / lookahead);
  return Array.from({ length: runs }, (_, run) =>
    sortedLongestFirst(problems.slice(run * lookahead, (run + 1) * lookahead), expected),
  ).flat();
}

function sortedLongestFirst(problems: readonly number[], seconds: readonly number[]): number[] {
  return problems.toSorted((a, b) => seconds[b]! - seconds[a]!);
}
