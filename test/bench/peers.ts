import { cpus } from 'node:os';
import { join } from 'node:path';
import { errorText, UserError } from '../../shared/base/errors.js';
import { checkModelDirectory, embeddedModelPath } from '../../shared/model/model-directory.js';
import {
  alternate,
  comparisonTable,
  type Clock,
  type Comparison,
  type Side,
} from './peers/comparison.js';
import { decodingLimit, OurDecoder, type DecodingWork } from './peers/decoding.js';
import { Installs } from './peers/installs.js';
import { measureMachine, type MachineRates } from './peers/machine.js';
import { PythonPeer } from './peers/python-peer.js';
import { OurBackend, OurTrainer, StepData, type StepRound } from './peers/training.js';

/** What is measured elsewhere, with its command: it takes long, or is not the work of one call. */
const elsewhere: readonly (readonly [row: string, command: string])[] = [
  ['the loop of the Tinker cookbook', 'npm run test:compat -- cookbook-speed'],
  ['the loop under long answers', 'npm run simulate'],
  ['manifest to first token', 'npm run bench -- engine'],
];

const smolSizes = [1, 16, 64] as const;
const rowNames = [
  'train',
  'decode-shipped',
  ...smolSizes.map((size) => `decode-smollm2-${size}` as const),
  'decode-qwen3',
] as const;
type RowName = (typeof rowNames)[number];

export interface PeersOptions {
  readonly rows: readonly string[]; // all if there are none
  readonly rounds: number;
  readonly clock: Clock;
}

interface Peer {
  readonly name: string;
  readonly open: () => Promise<Side>;
  readonly isRounded?: boolean; // computes in bfloat16
}

/** One of ours beside each of its peers. */
interface Match {
  readonly row: string;
  readonly ours: readonly { readonly side: string; readonly open: () => Promise<Side> }[];
  readonly peers: readonly Peer[];
  readonly limit: number | undefined;
}

/** What has been measured, as data and as the text that is printed. */
export interface PeersResult {
  readonly machine: MachineRates;
  readonly comparisons: readonly Comparison[];
  readonly text: string;
}

/**
 * Measures our training and decoding beside other software on the same work, alternating. What cannot be had here is named
 * in its line.
 *
 * @throws {UserError} on an unknown row, or if there is no Python environment at all.
 */
export async function benchPeers({ rows, rounds, clock }: PeersOptions): Promise<PeersResult> {
  const unknown = rows.find((row) => !(rowNames as readonly string[]).includes(row));
  if (unknown !== undefined) {
    throw new UserError(`no row ${unknown}; there are ${rowNames.join(', ')}`);
  }
  if (!Number.isInteger(rounds) || rounds < 1) {
    throw new UserError(`--rounds is ${rounds}; expected an integer of at least 1`);
  }
  const note = (line: string): void => void process.stderr.write(`${line}\n`);
  const installs = await Installs.open(note);
  const machine = await measureMachine(installs.python, rounds);
  const comparisons: Comparison[] = [];
  const wanted = (name: RowName) => rows.length === 0 || rows.includes(name);
  const run = async (match: Match) => {
    for (const { side, open } of match.ours) {
      await using own = await open();
      for (const peer of match.peers) {
        const comparison = await compare(match, side, own, peer, rounds);
        comparisons.push(comparison);
        note(comparisonTable([comparison], clock).split('\n').at(-1)!);
      }
    }
  };
  if (wanted('train')) {
    await using step = await StepData.create();
    await run(trainingMatch(installs, step, machine));
  }
  if (wanted('decode-shipped'))
    for (const match of await shippedMatches(installs, machine)) await run(match);
  for (const size of smolSizes) {
    if (wanted(`decode-smollm2-${size}`)) await run(await smolMatch(installs, machine, size));
  }
  if (wanted('decode-qwen3')) await run(await qwenMatch(installs, machine));
  return { machine, comparisons, text: textOf(machine, comparisons, { rounds, clock }) };
}

async function compare(
  { row, limit }: Match,
  side: string,
  own: Side,
  peer: Peer,
  rounds: number,
): Promise<Comparison> {
  const line = { row, side, peer: peer.name, ...(limit !== undefined && { limit }) };
  try {
    await using other = await peer.open();
    const pairs = await alternate(own, other, rounds);
    for (const [ours, theirs] of pairs) requireSameStep(ours, theirs, peer);
    return { ...line, pairs };
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return { ...line, pairs: [], missing: errorText(error).split('\n', 1)[0]! };
  }
}

/**
 * @throws {UserError} if two sides of a training step did not compute the same. With bfloat16 only the norm of the gradient
 * is compared: the loss is a small sum of large terms.
 */
function requireSameStep(
  ours: StepRound,
  theirs: StepRound,
  { name, isRounded = false }: Peer,
): void {
  for (const key of ['loss', 'norm'] as const) {
    const [a, b] = [ours[key], theirs[key]];
    if (a === undefined || b === undefined || (isRounded && key === 'loss')) continue;
    const tolerance = isRounded ? 0.05 : 1e-3;
    if (Math.abs(a - b) > tolerance * Math.abs(a)) {
      throw new UserError(`its ${key} of the step is ${b}, ours ${a} (${name})`);
    }
  }
}

function trainingMatch({ python }: Installs, step: StepData, machine: MachineRates): Match {
  const torch = (name: string, way: string, dtype: string): Peer => {
    const args = [
      '--model',
      embeddedModelPath,
      '--folder',
      step.folder,
      '--way',
      way,
      '--dtype',
      dtype,
    ];
    return {
      ...{ name, isRounded: dtype === 'bfloat16' },
      open: () => PythonPeer.start(python, 'train.py', args, { threads: 1 }),
    };
  };
  return {
    row: 'train a step of 64 × 16, rollouts/s',
    ours: [
      { side: 'in one call', open: () => OurTrainer.open(step, 1) },
      { side: 'through the backend', open: () => OurBackend.open(step, 1) },
    ],
    peers: [
      torch('torch, packed, merged', 'packed', 'float32'),
      torch('torch in bf16, packed, merged', 'packed', 'bfloat16'),
      torch('peft, padded', 'peft', 'float32'),
    ],
    limit: step.limit(machine),
  };
}

async function shippedMatches({ python }: Installs, machine: MachineRates): Promise<Match[]> {
  const { config } = await checkModelDirectory(embeddedModelPath);
  return [1, 8].flatMap((groups) => {
    const work = { prompt: 14, groups, groupSize: 16, tokens: 20, countsPrompt: true };
    const repeated: DecodingWork = { ...work, repeats: 24 / groups };
    return [1, 2].map((threads) => ({
      row: `decode, shipped model, ${groups} × 16, ${threads} thread${threads === 1 ? '' : 's'}, tokens/s`,
      ours: [{ side: '', open: () => OurDecoder.open(embeddedModelPath, repeated, threads) }],
      peers: [transformers(python, embeddedModelPath, repeated, 'float32', threads)],
      limit: decodingLimit(config, 16 * groups, machine),
    }));
  });
}

const publishedWork = (groupSize: number): DecodingWork => ({
  ...{ prompt: 64, groups: 1, groupSize, repeats: 1, countsPrompt: false },
  tokens: groupSize === 1 ? 17 : 7,
});

async function smolMatch(installs: Installs, machine: MachineRates, size: number): Promise<Match> {
  const model = await installs.smolLm2();
  const { config } = await checkModelDirectory(model);
  const work = publishedWork(size);
  const { python } = installs;
  const steps = sizes(work);
  const vocabulary = ['--vocabulary', String(config.vocabSize)];
  return {
    row: `decode, SmolLM2-135M, ${size} at once, tokens/s`,
    ours: [{ side: '', open: () => OurDecoder.open(model, work, 1) }],
    peers: [
      ...(['BF16', 'Q8_0'] as const).map((kind) =>
        llama(installs, model, 'smollm2-135m', kind, work),
      ),
      transformers(python, model, work, 'float32'),
      transformers(python, model, work, 'bfloat16'),
      {
        name: 'onnxruntime-genai fp32',
        open: async () => {
          const env = await installs.packages([
            ...['onnxruntime-genai==0.18.0', 'onnxruntime==1.31.1', 'onnx==1.23.2'],
            ...['onnx-ir==1.1.0', 'ml_dtypes==0.6.0'],
          ]);
          const folder = await installs.workFolder('smollm2-135m-genai');
          const args = [
            '--model',
            join(folder, 'fp32'),
            '--source',
            model,
            ...vocabulary,
            ...steps,
          ];
          return PythonPeer.start(python, 'ort_genai_decode.py', args, { threads: 1, env });
        },
      },
      {
        name: 'OpenVINO GenAI, 2 threads',
        open: async () => {
          const env = await installs.packages([
            ...['openvino-genai==2026.4.1.0', 'openvino==2026.4.1'],
            'openvino-tokenizers==2026.4.1.0',
          ]);
          const file = await installs.gguf(model, 'smollm2-135m', 'F16');
          const args = ['--model', file, ...vocabulary, ...steps];
          return PythonPeer.start(python, 'openvino_decode.py', args, { threads: 1, env });
        },
      },
    ],
    limit: decodingLimit(config, size, machine),
  };
}

async function qwenMatch(installs: Installs, machine: MachineRates): Promise<Match> {
  const model = await installs.randomQwen3();
  const { config } = await checkModelDirectory(model);
  const work = publishedWork(16);
  return {
    row: 'decode, shape of Qwen3-0.6B, 16 at once, tokens/s',
    ours: [{ side: '', open: () => OurDecoder.open(model, work, 1) }],
    peers: [
      transformers(installs.python, model, work, 'float32'),
      transformers(installs.python, model, work, 'bfloat16'),
      llama(installs, model, 'qwen3-0.6b-random', 'BF16', work),
      llama(installs, model, 'qwen3-0.6b-random', 'Q8_0', work),
    ],
    limit: decodingLimit(config, 16, machine),
  };
}

function transformers(
  python: string,
  model: string,
  work: DecodingWork,
  dtype: 'float32' | 'bfloat16',
  threads = 1,
): Peer {
  const args = ['--model', model, '--dtype', dtype, '--prompt', String(work.prompt)];
  args.push('--groups', String(work.groups), '--group-size', String(work.groupSize));
  args.push('--tokens', String(work.tokens), '--repeats', String(work.repeats));
  if (work.countsPrompt) args.push('--counts-prompt');
  const name = `transformers ${dtype === 'float32' ? 'fp32' : 'bf16'}`;
  return { name, open: () => PythonPeer.start(python, 'decode.py', args, { threads }) };
}

function llama(
  installs: Installs,
  model: string,
  name: string,
  kind: 'BF16' | 'Q8_0',
  work: DecodingWork,
): Peer {
  const open = async () => {
    const program = await installs.llamaBatchedBench();
    const file = await installs.gguf(model, name, kind);
    const args = ['--program', program, '--model', file, ...sizes(work)];
    return PythonPeer.start(installs.python, 'batched_bench.py', args, { threads: 1 });
  };
  return { name: `llama.cpp ${kind}`, open };
}

/** The steps after the first token. */
function sizes({ prompt, groupSize, tokens }: DecodingWork): string[] {
  const values = { prompt, 'group-size': groupSize, tokens: tokens - 1 };
  return Object.entries(values).flatMap(([name, value]) => [`--${name}`, String(value)]);
}

function textOf(
  machine: MachineRates,
  comparisons: readonly Comparison[],
  { rounds, clock }: Pick<PeersOptions, 'rounds' | 'clock'>,
): string {
  const time = clock === 'processor' ? 'a second of processor time' : 'a second by the clock';
  return [
    `rates in ${time}; ratios of ours to the peer's, median and quartiles of ${rounds} alternating rounds, one thread where no number is given`,
    `${cpus().length} cores, ${cpus()[0]?.model.trim() ?? 'unknown'}; one thread: ${(machine.products / 1e9).toFixed(0)} GFLOP/s in matrix products, ${(machine.reads / 1e9).toFixed(1)} GB/s of reads, both in float32`,
    '',
    comparisonTable(comparisons, clock),
    '',
    ...elsewhere.map(([row, command]) => `${row}: ${command}`),
    '',
  ].join('\n');
}
