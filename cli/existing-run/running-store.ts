import { keyFolderIn } from '../nats-server/start.js';
import { findRunningNats } from '../nats-server/running.js';
import type { FoundRun } from './find-run.js';

/** A server that holds a run, and where the keys to it lie if it wants any. */
export interface RunningStore {
  readonly natsUrl: string;
  readonly keyFolder: string | undefined;
}

/** The server that holds the run now: the user's own, or the run's if it is up. */
export async function runningStore({
  natsUrl,
  natsKeys,
  folder,
}: Pick<FoundRun, 'natsUrl' | 'natsKeys' | 'folder'>): Promise<RunningStore | undefined> {
  if (natsUrl !== undefined) return { natsUrl, keyFolder: natsKeys };
  const running = folder && (await findRunningNats(folder.nats).catch(() => undefined));
  if (folder === undefined || running === undefined) return undefined;
  return { natsUrl: running.url, keyFolder: keyFolderIn(folder.nats) };
}
