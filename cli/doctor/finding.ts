/** What one check found out. */
export interface Finding {
  readonly check: string;
  /** A warning is no obstacle, an error is; skipped: it could not be looked at. */
  readonly level: 'ok' | 'warning' | 'error' | 'skipped';
  readonly found: string;
  readonly remedy?: string; // always, but where all is well
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

/** `warning  files: a process may open 256 files`, and beneath it what to do. */
export function findingText({ check, level, found, remedy }: Finding): string {
  const first = `${marks[level]}  ${check}: ${found}\n`;
  return remedy === undefined ? first : `${first}         → ${remedy}\n`;
}

/** The last line: whether a training can begin. */
export function verdictText(findings: readonly Finding[]): string {
  const count = (level: Finding['level']) => findings.filter((each) => each.level === level).length;
  const [errors, warnings] = [count('error'), count('warning')];
  const minor = warnings === 0 ? '' : `, ${plural(warnings, 'warning')}`;
  return errors === 0
    ? `\nnothing stands in the way${minor}\n`
    : `\n${plural(errors, 'error')}${minor}: what the arrows say comes first\n`;
}

function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}

/** What to do about each thing that the doctor can find. */
export const remedies = {
  oldNode: 'install Node.js 20.11 or newer, from nodejs.org or with a version manager',
  noAvx2: 'take a machine whose processor has AVX2, or train by a server: --backend-url',
  fewCores: 'give this machine or container two cores or more; one will do, slowly',
  littleMemory: 'end other programs, or start fewer actors: npm start -- --actors 1',
  fewFiles: 'raise the limit before the start: ulimit -n 4096',
  runsFolderReadOnly: 'change its owner or mode, or name another one: --runs-dir',
  littleDisk: 'make room: delete runs that nobody needs, or name another disk: --runs-dir',
  noPort:
    'look at what keeps programs from listening on 127.0.0.1: a firewall, a sandbox, or no lo interface',
  portTaken:
    'another program listens there; give a service that should another --port, or end that program',
  noNatsServer:
    'npm start will fetch one; without a network, install nats-server 2.9 or newer, or name its file in OFFBEAT_NATS_SERVER',
  natsDoesNotStart:
    'install another nats-server (2.9 or newer) and name its file in OFFBEAT_NATS_SERVER',
  natsUnreachable: 'start it, or correct --nats-url; look at the firewall between',
  natsRefuses:
    'give the folder with the keys of this run, as offbeat nats-config wrote it: --nats-keys; the server must include its nats-server.conf',
  noJetStream: 'start it with nats-server -js, or add jetstream {} to its configuration',
  oldNats: 'install nats-server 2.9 or newer',
  littleStorage:
    "raise the account's or the server's JetStream storage limit, or delete streams of old runs",
  fewStreams: "raise the account's limit of streams: a run has eleven",
  smallPayload: 'raise max_payload to 1 MiB: large groups take a detour by the object store now',
  keyMayNot:
    'write keys and permissions anew with offbeat nats-config for this run and these actors, include its nats-server.conf and reload the server',
  noKey: 'offbeat nats-config writes keys for every role; name their folder with --nats-keys',
  permissionsUnknown: 'name the run with --run, since permissions are of a run',
  clockSkewed:
    'synchronise both clocks with NTP (chrony, systemd-timesyncd): ages, latencies and who is live are told by them',
  clockUnknown:
    'give an address that tells the time: --backend-url, or the monitoring port of NATS by --nats-monitoring-url',
  backendUnreachable: 'start it, or correct --backend-url; look at the firewall between',
  backendRefuses: 'give the key that this server knows: TINKER_API_KEY, or --api-key',
  noTinkerServer:
    'see that --backend-url is the address of a Tinker server, with its path if it has one',
  modelNotServed: 'name one that it serves with --model-name, or have the server load this one',
  cannotSample:
    'let actors sample themselves (--sampler onnx), if the server hands out weights; or have it serve this model for sampling',
  rankRefused:
    'take a rank that the server accepts with --lora-rank; TuFT: max_lora_rank, with FSDP fsdp_rank_slots',
  rankNotTried: 'leave out --no-trial to have an adapter made and given back',
  shortContext: "take a --max-tokens that fits, or raise the server's limit of the context",
  modelBroken: 'download the model again as a whole, or name another directory: --model-dir',
  tokenizerDiffers: 'name the directory of the very model that the backend serves: --model-dir',
  tokenizerUnknown:
    'see to it yourself that --model-dir was downloaded from there: a wrong tokenizer trains on other text than it samples',
  asItSays: 'change what it names',
  unforeseen: 'this is a fault of the doctor itself, or of the system under it: please report it',
  noRuntime: 'run npm ci on this platform: node_modules comes from another one, or is incomplete',
} as const satisfies Readonly<Record<string, string>>;

export type Trouble = keyof typeof remedies;
