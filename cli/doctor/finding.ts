/** What one check found out. */
export interface Finding {
  readonly check: string;
  /** An error prevents training, a warning does not; skipped: the check could not be made. */
  readonly level: 'ok' | 'warning' | 'error' | 'skipped';
  readonly found: string;
  readonly remedy?: string; // for every level except ok
}

export function ok(check: string, found: string): Finding {
  return { check, level: 'ok', found };
}

export function finding(
  check: string,
  level: Exclude<Finding['level'], 'ok'>,
  found: string,
  trouble: Trouble,
): Finding {
  return { check, level, found, remedy: remedies[trouble] };
}

const marks: Readonly<Record<Finding['level'], string>> = {
  ok: 'ok     ',
  warning: 'warning',
  error: 'ERROR  ',
  skipped: 'skipped',
};

/** `warning  files: a process may open 256 files`, with the remedy on the next line. */
export function findingText({ check, level, found, remedy }: Finding): string {
  const first = `${marks[level]}  ${check}: ${found}\n`;
  return remedy === undefined ? first : `${first}         → ${remedy}\n`;
}

/** The last line: whether training can begin. */
export function verdictText(findings: readonly Finding[]): string {
  const count = (level: Finding['level']) => findings.filter((each) => each.level === level).length;
  const [errors, warnings] = [count('error'), count('warning')];
  const minor = warnings === 0 ? '' : `, ${plural(warnings, 'warning')}`;
  return errors === 0
    ? `\ntraining can begin${minor}\n`
    : `\n${plural(errors, 'error')}${minor}: first do what the arrows say\n`;
}

function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}

/** The remedy for each fault that the doctor can find. */
export const remedies = {
  oldNode: 'install Node.js 20.11 or newer, from nodejs.org or with a version manager',
  halfWeights:
    'use Node.js 20 or 22, save the model in bfloat16, or train and sample on servers: --backend-url, --sampler',
  noAvx2: 'use a machine whose processor has AVX2, or train on a server: --backend-url',
  fewCores: 'give this machine or container two or more cores; one works, slowly',
  littleMemory: 'end other programs, or start fewer actors: npm start -- --actors 1',
  fewFiles: 'raise the limit before the start: ulimit -n 4096',
  runsFolderReadOnly: 'change its owner or mode, or name another one: --runs-dir',
  littleDisk:
    'free some space: delete runs that you no longer need, or name another disk: --runs-dir',
  noPort:
    'find what prevents programs from listening on 127.0.0.1: a firewall, a sandbox, or a missing lo interface',
  portTaken:
    'end the program that listens there, or give the service another one: --port, or --http-port of offbeat score-server',
  noNatsServer:
    'npm start will download one; without a network, install nats-server 2.9 or newer, or name its file in OFFBEAT_NATS_SERVER',
  natsDoesNotStart:
    'install another nats-server (2.9 or newer) and name its file in OFFBEAT_NATS_SERVER',
  natsUnreachable: 'start it, or correct --nats-url; check the firewall in between',
  natsRefuses:
    'give the folder with the keys of this run, as offbeat nats-config wrote it: --nats-keys; the server must include its nats-server.conf',
  noJetStream: 'start it with nats-server -js, or add jetstream {} to its configuration',
  oldNats: 'install nats-server 2.9 or newer',
  littleStorage:
    "raise the account's or the server's JetStream storage limit, or delete finished runs: offbeat delete",
  fewStreams: "raise the account's limit of streams: a run has eleven",
  smallPayload: 'raise max_payload to 1 MiB: until then large groups go through the object store',
  keyMayNot:
    'write keys and permissions again with offbeat nats-config for this run and these actors, include its nats-server.conf and restart the server',
  noKey: 'offbeat nats-config writes keys for every role; name their folder with --nats-keys',
  permissionsUnknown: 'name the run with --run, since each run has its own permissions',
  clockSkewed:
    'synchronize both clocks with NTP (chrony, systemd-timesyncd): ages, latencies and leases depend on them',
  clockUnknown:
    'give an address whose answers have a Date header: --backend-url, or --nats-monitoring-url for NATS',
  backendUnreachable: 'start it, or correct --backend-url; check the firewall in between',
  backendRefuses: 'give the key that this server knows: TINKER_API_KEY, or --api-key',
  noTinkerServer:
    'check that --backend-url is the address of a Tinker server, with its path if it has one',
  engineUnreachable: 'start it, or correct --engine-url; check the firewall in between',
  engineRefuses: "give the engine's key: --engine-api-key, or ACTOR_ENGINE_API_KEY",
  noEngine: 'check that --engine-url is the address of vLLM 0.24 or SGLang 0.5.5, or newer',
  engineTemperature:
    'start it with --logprobs-mode processed_logprobs (SGLang: without SGLANG_RETURN_ORIGINAL_LOGPROB), unless the temperature of the run is 1',
  engineAbort:
    'use vLLM 0.32 or newer, which ends such calls at once; nothing is lost without it but time of the engine',
  engineSlotsUnknown:
    'vLLM says it after the first call with an adapter; behind a proxy give it to the actor as --engine-max-loras',
  engineSlotsFew:
    'start it with room for --max-steps-off-policy + 2 adapters: vLLM --max-loras, SGLang --max-loras-per-batch',
  engineSlotsFull:
    'unload adapters that no actor uses: a server with more adapters than slots evicts some, and actors then prove their versions again',
  engineMetrics:
    'let /metrics through: without it the actor notices a hung engine late, and does not adapt the groups in flight',
  engineMetricsSglang:
    'start it with --enable-metrics, in a release that shows sglang:realtime_tokens_total: else the actor notices a hung engine late, and does not adapt the groups in flight',
  modelNotServed: 'name one that it serves with --model-name, or let the server load this one',
  cannotTrain: 'let the server train this model, or name another one; TuFT: capabilities',
  cannotSample:
    'let actors sample on engines of your own (--sampler vllm or sglang) or in their own processes (onnx), or let the server sample this model; TuFT: capabilities',
  rankRefused:
    'choose a rank that the server accepts with --lora-rank; TuFT: max_lora_rank, with FSDP fsdp_rank_slots',
  oneAdapter:
    'start no second run on this server, nor this check, while one trains there; TuFT with FSDP: fsdp_rank_slots',
  noLoss: 'train on another server: this one has no loss that could carry the others',
  noAdapters:
    'start the actors with --sampler tinker; or let the server serve archives, or mount its checkpoint directory: --checkpoint-dir of the learner',
  neitherWay: 'let the server sample, or serve archives of adapters: actors can do neither here',
  rankNotTried: 'leave out --no-trial, so that an adapter is created and released',
  shortContext: "choose a --max-tokens that fits, or raise the server's context limit",
  modelBroken: 'download the complete model again, or name another directory: --model-dir',
  tokenizerDiffers: 'name the directory of the model that the backend serves: --model-dir',
  tokenizerUnknown:
    'make sure that --model-dir was downloaded from there: with a wrong tokenizer the model trains on other text than it samples',
  asItSays: 'change what the message names',
  unforeseen: 'this is a fault of the doctor itself, or of the system under it: please report it',
  noRuntime: 'run npm ci on this platform: node_modules comes from another one, or is incomplete',
} as const satisfies Readonly<Record<string, string>>;

export type Trouble = keyof typeof remedies;
