import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Summary } from '../../cli/up/summary.js';
import { createRandom, type Random } from '../../shared/base/random.js';
import { SmallDisk } from '../support/small-disk.js';
import { UpProcess } from '../support/up-process.js';
import { until } from '../support/waiting.js';
import { auditFiles } from './audit-files.js';
import type { ChaosOptions, ChaosResult } from './chaos.js';
import { learnerFlags, shapeOf } from './shape.js';
import { type Tear, tearLedger, tears } from './staged.js';
import { begins, defaultStillMs, StillWatch } from './still-watch.js';

/** Words of a process's command line, by its displayed name. */
const members = {
  learner: ['cli.js learner'],
  actor: ['cli.js actor', '--name=actor-0'],
  'reward service': ['cli.js reward-service'],
  backend: ['cli.js local-backend'],
  'nats-server': ['nats-server.conf'],
} as const;

type LaunchMishap =
  | { readonly kind: 'member'; readonly member: keyof typeof members }
  | { readonly kind: 'launcher'; readonly how: 'SIGKILL' | 'SIGTERM' }
  | { readonly kind: 'disk' }
  | { readonly kind: 'torn'; readonly lost: Tear };

/** The mishaps of a run of `offbeat up`, each once; a torn file last, since it may stop the run. */
export function launchPlan(random: Random): LaunchMishap[] {
  return [
    ...random.shuffle<LaunchMishap>([
      ...(Object.keys(members) as (keyof typeof members)[]).map(
        (member) => ({ kind: 'member', member }) as const,
      ),
      ...(['SIGKILL', 'SIGTERM'] as const).map((how) => ({ kind: 'launcher', how }) as const),
      ...(canMount() ? [{ kind: 'disk' } as const] : []),
    ]),
    ...tears.map((lost) => ({ kind: 'torn', lost }) as const),
  ];
}

export function nameOfLaunch(mishap: LaunchMishap): string {
  switch (mishap.kind) {
    case 'member':
      return `offbeat up: SIGKILL ${mishap.member}`;
    case 'launcher':
      return `offbeat up: ${mishap.how} and --resume`;
    case 'disk':
      return 'offbeat up: disk full';
    case 'torn':
      return `offbeat up: ledger's file torn: ${mishap.lost}`;
  }
}

/** Mounting a file system requires root. */
function canMount(): boolean {
  return process.platform === 'linux' && process.getuid?.() === 0;
}

/** By then two checkpoints have been written, so there is one to fall back to besides the start. */
const stepsBefore = 8;
const diskBytes = 200_000_000;
const diskFullMs = 12_000;

/** A run of `offbeat up` that is killed, whose disk is filled and whose ledger is torn, each time followed by --resume. */
export async function chaosOfLauncher(options: ChaosOptions): Promise<ChaosResult> {
  const { seed, maxSeconds, stillMs = defaultStillMs, only = '', report } = options;
  const startedAt = performance.now();
  const secondsSoFar = () => (performance.now() - startedAt) / 1_000;
  const random = createRandom(`chaos ${seed}`);
  const mishaps: Record<string, number> = {};
  const violations: string[] = [];

  await using launched = await Launched.start(seed, report);
  const still = new StillWatch(stillMs, () => launched.steps);
  const goesOn = async (steps: number) => {
    const goal = launched.steps + steps;
    await until(async () => {
      await launched.look(violations);
      return launched.steps >= goal || still.isStill || launched.hasStopped;
    });
    if (still.isStill) report(launched.words);
    return !still.isStill && !launched.hasStopped;
  };

  let isAlive = await begins(still, async () => {
    await launched.look(violations);
    return launched.steps > 0;
  });
  if (isAlive) isAlive = await goesOn(stepsBefore);
  const plan = launchPlan(random).filter((mishap) => nameOfLaunch(mishap).includes(only));
  for (const mishap of plan) {
    if (!isAlive || secondsSoFar() > maxSeconds) break;
    const name = nameOfLaunch(mishap);
    report(`${secondsSoFar().toFixed(0)} s, ${launched.steps} steps trained: ${name}`);
    mishaps[name] = (mishaps[name] ?? 0) + 1;
    {
      using _outage = still.outage(name);
      violations.push(...(await launched.strike(mishap)));
    }
    isAlive = await goesOn(3);
  }
  let steps = 0;
  if (isAlive) {
    const { problems, ...ending } = await launched.finish(shapeOf(seed).groupsPerBatch);
    steps = ending.steps;
    violations.push(...problems);
  }
  return {
    ...{ seed, mishaps, steps, seconds: secondsSoFar() },
    ...{ trained: steps * shapeOf(seed).groupsPerBatch, largestStaleness: 0, lost: 0 },
    stillSeconds: still.longestMs / 1_000,
    violations: [...still.violations, ...violations],
    ownEnds: {},
  };
}

/** One run and its current `offbeat up` process. */
class Launched implements AsyncDisposable {
  /** Its learner cannot trust the stored state, and `offbeat up` has reported that and ended. */
  hasStopped = false;
  readonly #lines = new Set<string>(); // all lines that metrics.jsonl ever had
  #first: string | undefined; // its first line, once a checkpoint covers it
  #wasDamaged = false;

  private constructor(
    private readonly folder: string,
    private readonly disk: SmallDisk | undefined,
    private up: UpProcess,
    private readonly report: (line: string) => void,
  ) {}

  static async start(seed: number, report: (line: string) => void): Promise<Launched> {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-up-'));
    const disk = canMount() ? SmallDisk.at(folder, diskBytes) : undefined;
    const shape = { ...shapeOf(seed), evalProblems: 0, evalEveryVersions: 0 };
    const flags = [
      ...learnerFlags(shape),
      ...['--checkpoint-every-steps=3', '--lease-seconds=4', '--max-minutes=30', '--no-dashboard'],
    ];
    const up = await UpProcess.start(flags, { folder, run: `chaos-up-${seed}` });
    return new Launched(folder, disk, up, report);
  }

  /** All steps that metrics.jsonl ever had, including those lost later. */
  get steps(): number {
    return this.#lines.size;
  }

  get words(): string {
    return `${this.up.out}\n${this.up.err}`;
  }

  /** Reads the current files; restarts `offbeat up` if it has ended by itself. */
  async look(problems: string[]): Promise<void> {
    const text = await this.up.read('metrics.jsonl').catch(() => '');
    const lines = text.split('\n').slice(0, -1);
    for (const line of lines) this.#lines.add(line);
    if (lines.length >= stepsBefore) this.#first ??= lines[0];
    if (this.#first !== undefined && lines.length > 0 && lines[0] !== this.#first) {
      problems.push('metrics.jsonl was begun anew: its first step is another than before');
      this.#first = lines[0];
    }
    if (this.up.child.exitCode === null) return;
    const code = this.up.child.exitCode;
    if (this.#wasDamaged && code === 2 && /ledger|checkpoint/i.test(this.up.err)) {
      this.report(`offbeat up has stopped: ${this.up.err}`);
      this.hasStopped = true;
      return;
    }
    this.report(this.words);
    const why = this.up.err.trim().split('\n').slice(0, 2).join(' ');
    problems.push(`offbeat up ended by itself with code ${code}: ${why}`);
    await this.#resume();
  }

  /** @returns the faults seen meanwhile. */
  async strike(mishap: LaunchMishap): Promise<string[]> {
    switch (mishap.kind) {
      case 'member':
        process.kill(this.up.pidOf(...members[mishap.member]), 'SIGKILL');
        return [];
      case 'launcher': {
        const code = await this.#end(mishap.how);
        await this.#resume();
        const expected = mishap.how === 'SIGKILL' ? 'SIGKILL' : 143;
        return code === expected ? [] : [`offbeat up ended with ${code} after ${mishap.how}`];
      }
      case 'disk':
        return await this.#fillDisk();
      case 'torn': {
        await this.#end('SIGKILL');
        const store = join(this.up.path('nats'), 'store');
        await tearLedger(store, this.up.run, mishap.lost);
        this.#wasDamaged = true;
        await this.#resume();
        return [];
      }
    }
  }

  /** Lets it train three more steps, to the end of the run, and checks the files that it leaves. */
  async finish(groupsPerBatch: number): Promise<{ steps: number; problems: string[] }> {
    const problems: string[] = [];
    const code = await this.#end('SIGTERM');
    if (code !== 143) problems.push(`offbeat up ended with ${code} after SIGTERM`);
    const written = await this.up.read('summary.json').catch(() => undefined);
    if (written === undefined) {
      problems.push(`offbeat up left no summary.json after SIGTERM: ${this.#lastWords()}`);
    }
    const lines = (await this.up.read('metrics.jsonl')).trim().split('\n').length;
    const goal = lines + 3; // a killed learner may have reported steps that it could not save
    await this.#resume(`--max-steps=${goal}`, '--json');
    const last = await this.up.ended();
    if (last !== 0) {
      const why = this.up.err.trim().split('\n').at(-1) ?? '';
      return {
        steps: 0,
        problems: [...problems, `the last offbeat up ended with ${last}: ${why}`],
      };
    }
    const { steps, version, groups } = Summary.parse(JSON.parse(this.up.out));
    const ledger = { step: goal, version, counts: groups };
    const files = {
      metrics: await this.up.read('metrics.jsonl'),
      summary: await this.up.read('summary.json'),
    };
    problems.push(...auditFiles({ ...files, ledger, hasEvaluations: false }));
    const { issued, trained, skippedZeroVariance, stale, dead, outstanding } = groups;
    const ended = trained + skippedZeroVariance + stale + dead;
    if (issued !== ended || outstanding !== 0)
      problems.push(`${issued} tickets issued, ${ended} ended, ${outstanding} outstanding`);
    // A learner that is asked to stop ends with a shorter step of its finished substeps.
    if (trained > groupsPerBatch * goal)
      problems.push(`${trained} groups trained in ${goal} steps of ${groupsPerBatch}`);
    const first = (await readFile(this.up.path('metrics.jsonl'), 'utf8')).split('\n')[0];
    if (first !== this.#first) problems.push('metrics.jsonl was begun anew');
    if (this.up.processes().length > 0) problems.push('offbeat up left processes behind');
    return { steps, problems };
  }

  /** What the launcher said last, for a report. */
  #lastWords(): string {
    return this.words.trim().split('\n').slice(-6).join(' | ');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.up.child.kill('SIGKILL');
    this.up.killAll();
    await this.#gone();
    this.disk?.[Symbol.dispose]();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  async #fillDisk(): Promise<string[]> {
    const { disk } = this;
    if (disk === undefined) throw new Error('root cannot mount a file system here');
    const said = this.words.length;
    try {
      // Again and again: a checkpoint that is deleted meanwhile would leave room, and nothing to report.
      for (const until = performance.now() + diskFullMs; performance.now() < until;) {
        disk.fill();
        await sleep(200);
      }
    } finally {
      disk.clear();
    }
    if (/disk|no (room|space)/i.test(this.words.slice(said))) return [];
    const during = `${diskFullMs / 1_000} s: ${this.#lastWords()}`;
    return [`offbeat up said nothing of a full disk for ${during}`];
  }

  async #end(how: 'SIGKILL' | 'SIGTERM'): Promise<number | string | null> {
    this.up.child.kill(how);
    const code = await this.up.ended();
    await this.#gone();
    return code;
  }

  async #resume(...more: readonly string[]): Promise<void> {
    const place = { folder: this.folder, run: this.up.run };
    this.up = await UpProcess.start(['--resume', '--no-dashboard', ...more], place);
  }

  async #gone(): Promise<void> {
    await until(() => this.up.processes().length === 0);
  }
}
