import type { Command } from './managed-process.js';

/**
 * Runs "$@" and ends it when our standard input closes, for programs that do not watch theirs.
 * The watcher is a process of its own, so the program ends with the launcher even if this shell
 * was killed as well; a shell, because it survives whoever kills every Node process at once.
 */
const script = `
exec 3<&0
"$@" 3<&- </dev/null &
program=$!
(
  while read -r _; do :; done
  kill -TERM "$program"
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$program" || exit; sleep 0.5; done
  kill -KILL "$program"
) <&3 3<&- >/dev/null 2>&1 &
watcher=$!
exec 3<&-
trap 'kill -TERM "$program"' TERM INT
while :; do
  wait "$program"
  code=$?
  kill -0 "$program" 2>/dev/null || break
done
kill -KILL "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
exit "$code"
`;

/** The same command, ended when its standard input closes. */
export function tieToParent({ file, args, env }: Command): Command {
  return {
    file: '/bin/sh',
    args: ['-c', script, 'offbeat-tie', file, ...args],
    ...(env !== undefined && { env }),
  };
}
