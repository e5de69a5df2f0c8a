import { join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { readJson } from '../../shared/base/read-json.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { engineAddresses, httpAddress, string, int } from '../../shared/service/config-fields.js';
import { loadConfig, type Environment } from '../../shared/service/config.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { findRun, keysOfNoServer, ownServer, whichRun } from '../existing-run/find-run.js';
import { keyFolderIn } from '../nats-server/start.js';
import type { RunFolder } from '../run-folder.js';
import { readLaunch } from '../up/resume.js';
import { keyOf, processSettings } from '../up/up-config.js';

/** The flags of `offbeat doctor`. */
export const DoctorConfig = z.object({
  ...whichRun,
  run: whichRun.run
    .optional()
    .describe(
      'a run: its folder runs/TEXT provides the other settings, or it is on the server at --nats-url.',
    ),
  natsMonitoringUrl: httpAddress
    .optional()
    .describe('monitoring port of that server, used to check its clock.'),
  backendUrl: httpAddress
    .optional()
    .describe('the TuFT or Tinker server to train on, if not the local backend.'),
  apiKey: processSettings.apiKey,
  engineUrl: engineAddresses
    .optional()
    .describe('vLLM or SGLang servers that actors are to sample with, separated by commas.'),
  engineApiKey: string.optional().describe('key for --engine-url, if it has one.'),
  modelDir: string
    .optional()
    .describe('Hugging Face directory of the model; by default the one in this repository.'),
  modelName: string.optional().describe('the model as the backend calls it.'),
  loraRank: int
    .positive()
    .optional()
    .describe('rank of the adapter to train; by default that of --run, else 32.'),
  trial: z
    .boolean()
    .default(true)
    .describe(
      'creates two adapters of that rank on the backend, tries them and releases them; --no-trial does not.',
    ),
  json: z.boolean().default(false).describe('standard output is JSON.'),
});

export const doctorService = 'offbeat-doctor';

/** The addresses and folders that the checks use. */
export interface Places {
  readonly run: string | undefined;
  readonly runsDir: string;
  readonly natsUrl: string | undefined; // none: the doctor starts its own server
  readonly natsKeys: string | undefined;
  readonly natsMonitoringUrl: string | undefined;
  readonly backendUrl: string | undefined; // none: the local backend
  readonly apiKey: string | undefined;
  readonly engineUrl: string | undefined; // none: no engine is asked
  readonly engineApiKey: string | undefined;
  readonly modelDir: string;
  readonly modelName: string | undefined;
  readonly loraRank: number;
  readonly trial: boolean;
  readonly json: boolean;
}

/**
 * Reads the flags; a local run provides what they leave open.
 *
 * @throws {UserError} listing every flag that is wrong; or if there is no such run.
 */
export async function loadPlaces(argv: readonly string[], env: Environment): Promise<Places> {
  const config = loadConfig(DoctorConfig, doctorService, argv, env);
  const { run, natsUrl, natsKeys, natsMonitoringUrl, backendUrl, modelDir, modelName } = config;
  const { engineUrl, engineApiKey = env['ACTOR_ENGINE_API_KEY'], loraRank } = config;
  const places: Places = {
    ...config,
    run,
    natsUrl,
    natsKeys,
    natsMonitoringUrl,
    backendUrl,
    engineUrl,
    engineApiKey,
    modelName,
    apiKey: keyOf(config, env),
    modelDir: modelDir ?? embeddedModelPath,
    loraRank: loraRank ?? 32,
  };
  if (run === undefined) {
    if (natsKeys !== undefined && natsUrl === undefined) throw new UserError(keysOfNoServer);
    return places;
  }

  const found = await findRun({ ...config, run });
  const { folder } = found;
  const own = found.natsUrl === undefined && folder ? await ownServer(folder) : undefined;
  return {
    ...places,
    natsUrl: found.natsUrl ?? own?.url,
    natsKeys: found.natsKeys ?? (own && folder && keyFolderIn(folder.nats)),
    natsMonitoringUrl: natsMonitoringUrl ?? own?.monitoringUrl,
    backendUrl: found.backendUrl,
    engineUrl: found.engineUrl,
    modelDir: found.modelDir ?? places.modelDir,
    modelName: modelName ?? found.modelName,
    loraRank: loraRank ?? (folder && (await rankOf(folder))) ?? places.loraRank,
  };
}

/** The rank of a run's adapter: as its learner has settled it, else as it was started with. */
async function rankOf(folder: RunFolder): Promise<number | undefined> {
  const settled = await readJson(join(folder.path, 'config.json')).catch(() => undefined);
  const { settings } = await readLaunch(folder);
  return (
    RunConfig.safeParse(settled).data?.lora.rank ??
    DoctorConfig.shape.loraRank.safeParse(settings['loraRank']).data
  );
}
