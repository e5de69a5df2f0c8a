import { hostname } from 'node:os';
import { z } from 'zod';
import { UserError } from '../shared/base/errors.js';
import { isLoopback, readSecretFile } from '../shared/service/keys.js';
import { keepSecret } from '../shared/service/telemetry/secrets.js';
import { port, string } from '../shared/service/config-fields.js';
import { natsSettings } from '../shared/broker/access.js';
import { RunName } from '../shared/wire/run-name.js';
import { embeddedModelPath } from '../shared/model/model-directory.js';

/** Where `POST /score` is served, and to whom. */
export const scoreSettings = {
  httpHost: string.default('127.0.0.1').describe('address of POST /score.'),
  httpPort: port.default(0).describe('and its port; 0: any, see the log.'),
  httpKey: z
    .string()
    .regex(/^[\x21-\x7e]{16,}$/, 'expected at least 16 characters, without blanks')
    .optional()
    .describe(
      'key that POST /score wants in X-API-Key; where --http-host is not loopback, this or a file is needed.',
    ),
  httpKeyFile: string.optional().describe('file with that key, which not everybody may read.'),
  httpOpen: z
    .boolean()
    .default(false)
    .describe('serve POST /score beyond this machine without a key, to whoever reaches it.'),
};
type ScoreSettings = z.infer<z.ZodObject<typeof scoreSettings>>;

/** A rule for a configuration with `scoreSettings`: nobody but this machine scores without a key. */
export function checkScoreSettings({ value, issues }: z.core.ParsePayload<ScoreSettings>): void {
  const { httpHost, httpKey, httpKeyFile, httpOpen } = value;
  const complain = (key: keyof ScoreSettings, message: string) =>
    issues.push({ code: 'custom', input: value, path: [key], message });
  const hasKey = httpKey !== undefined || httpKeyFile !== undefined;
  if (httpKey !== undefined && httpKeyFile !== undefined) {
    complain('httpKeyFile', 'it and --http-key exclude each other; give one of the two');
  } else if (hasKey && httpOpen) {
    complain(
      'httpOpen',
      'there is a key, which everybody would need all the same; remove one of the two',
    );
  } else if (!hasKey && !httpOpen && !isLoopback(httpHost)) {
    complain(
      'httpHost',
      'others than this machine reach it, and each could keep this service busy; give --http-key or ' +
        '--http-key-file, or --http-open if something in front of it decides who may',
    );
  }
}

/**
 * The key that `POST /score` wants, if any.
 *
 * @throws {UserError} if its file cannot be read, may be read by everybody, or holds no key.
 */
export async function scoreKey({
  httpKey,
  httpKeyFile,
}: Pick<ScoreSettings, 'httpKey' | 'httpKeyFile'>): Promise<string | undefined> {
  if (httpKeyFile === undefined) return httpKey;
  const parsed = scoreSettings.httpKey.safeParse(
    (await readSecretFile(httpKeyFile, '--http-key-file')).trim(),
  );
  if (!parsed.success) {
    // Its text stays out of the message: it may be another secret.
    throw new UserError(
      `--http-key-file ${httpKeyFile} holds no key: expected one line of at least 16 characters, without blanks`,
    );
  }
  if (parsed.data !== undefined) keepSecret(parsed.data);
  return parsed.data;
}

/** Where a replica finds things. What is trained, it reads from the run's configuration in NATS. */
export const RewardServiceConfig = z
  .object({
    ...natsSettings,
    run: RunName.describe('name of the run whose rollouts it scores.'),
    name: string
      .max(128)
      .default(`${hostname()}-${process.pid}`.slice(-128))
      .describe('name of this replica, told with each score; by default host and pid.'),
    modelDir: string
      .default(embeddedModelPath)
      .describe(
        "Hugging Face directory of the run's model, which must be the learner's to the byte.",
      ),
    datasetPath: string
      .optional()
      .describe("the run's data, if it is here in a file under another path than the learner's."),
    healthHost: string.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
    healthPort: port.default(0).describe('and its port; 0: any, see the log.'),
    ...scoreSettings,
  })
  .check(checkScoreSettings);
export type RewardServiceConfig = z.infer<typeof RewardServiceConfig>;
