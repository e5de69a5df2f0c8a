import { hostname } from 'node:os';
import { z } from 'zod';
import { UserError } from '../shared/base/errors.js';
import { isLoopback, readSecretFile } from '../shared/service/keys.js';
import { keepSecret } from '../shared/service/telemetry/secrets.js';
import { port, string } from '../shared/service/config-fields.js';
import { natsSettings } from '../shared/broker/access.js';
import { RunName } from '../shared/wire/run-name.js';
import { embeddedModelPath } from '../shared/model/model-directory.js';

/** Address and access of `POST /score`. */
export const scoreSettings = {
  httpHost: string.default('127.0.0.1').describe('address of POST /score.'),
  httpPort: port.default(0).describe('port of POST /score; 0 picks a free one (logged).'),
  httpKey: z
    .string()
    .regex(/^[\x21-\x7e]{16,}$/, 'expected at least 16 characters, without blanks')
    .optional()
    .describe(
      'key that POST /score requires in X-API-Key; if --http-host is not loopback, this or a file is required.',
    ),
  httpKeyFile: string
    .optional()
    .describe('file with that key; other users must not be able to read it.'),
  httpOpen: z
    .boolean()
    .default(false)
    .describe('serve POST /score beyond this machine without a key.'),
};
type ScoreSettings = z.infer<z.ZodObject<typeof scoreSettings>>;

/** A rule for a configuration with `scoreSettings`: requests from other machines need a key. */
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
      'there is a key, which every request would need all the same; remove one of the two',
    );
  } else if (!hasKey && !httpOpen && !isLoopback(httpHost)) {
    complain(
      'httpHost',
      'other machines can reach it, and each could keep this service busy; give --http-key or ' +
        '--http-key-file, or --http-open if a proxy in front of it controls access',
    );
  }
}

/**
 * The key that `POST /score` requires, if any.
 *
 * @throws {UserError} if its file cannot be read, is readable by other users, or holds no key.
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
    // The message must not quote the file: it may hold another secret.
    throw new UserError(
      `--http-key-file ${httpKeyFile} holds no key: expected one line of at least 16 characters, without blanks`,
    );
  }
  if (parsed.data !== undefined) keepSecret(parsed.data);
  return parsed.data;
}

/** A replica's connections. It reads the task from the run's configuration in NATS. */
export const RewardServiceConfig = z
  .object({
    ...natsSettings,
    run: RunName.describe('name of the run whose rollouts it scores.'),
    name: string
      .max(128)
      .default(`${hostname()}-${process.pid}`.slice(-128))
      .describe('name of this replica, sent with each score; by default host and pid.'),
    modelDir: string
      .default(embeddedModelPath)
      .describe(
        "Hugging Face directory of the run's model, identical to the learner's byte for byte.",
      ),
    datasetPath: string
      .optional()
      .describe("path of the run's data on this machine, if it differs from the learner's."),
    healthHost: string.default('127.0.0.1').describe('address of /healthz, /readyz and /metrics.'),
    healthPort: port.default(0).describe('health port; 0 picks a free one (logged).'),
    ...scoreSettings,
  })
  .check(checkScoreSettings);
export type RewardServiceConfig = z.infer<typeof RewardServiceConfig>;
