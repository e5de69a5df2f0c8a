import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorText } from '../../shared/base/errors.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import { givenUpCode, userErrorCode } from '../../shared/base/exit-codes.js';
import type { DiskWatch } from './disk-watch.js';
import { describeExit, type Exit, type Command, ManagedProcess } from './managed-process.js';
import { reportedDiskTrouble, whatIsNotReady } from './readiness.js';
import { maxRestarts, Restarts } from './restarts.js';
import { lastWords, logTail } from './log-tail.js';

/** A service of the run, and what its end means. */
export interface Member {
  readonly name: string; // actor-0: names its log, too
  /** Called for each start, so that a restart gets a new port. */
  readonly command: () => Promise<Command & { healthUrl: string }>;
  /**
   * `finishes`: the run is over when the member ends with code 0 or has given up training; after any other end it is
   * restarted. `restarts`: it is restarted after any end. Restarts stop when they cannot help; then the run fails.
   */
  readonly whenItEnds: 'finishes' | 'restarts';
  /** Those of one rank are stopped together, lower ranks first. */
  readonly stopRank: number;
  readonly stopGraceMs: number;
}

/** The run cannot continue: a required process has ended. */
export class FleetError extends Error {
  override readonly name = 'FleetError';
  constructor(
    message: string,
    readonly exitCode: number,
  ) {
    super(message);
  }
}

const failedGraceMs = 10_000;
/** On a full disk nothing can be saved, so the wait is short. */
const fullDiskGraceMs = 1_500;

interface Running {
  readonly process: ManagedProcess;
  readonly member: Pick<Member, 'stopRank' | 'stopGraceMs'> & Partial<Pick<Member, 'whenItEnds'>>;
  readonly healthUrl?: string;
}

/** The processes of one run: started, watched, restarted if that can help, stopped in order. */
export class Fleet implements AsyncDisposable {
  /** Aborts, with a FleetError as reason, when the run cannot continue. */
  readonly failed: AbortSignal;
  /** Ends the fleet at once instead of in order. */
  readonly #hurry: AbortSignal;
  readonly #watchers = new TaskScope();
  readonly #stopping = new AbortController();
  readonly #running = new Map<string, Running>();
  readonly #adopted: { readonly stopRank: number; readonly ending: AbortController }[] = [];
  readonly #logFolder: string;
  readonly #report: (line: string) => void;
  readonly #disk: DiskWatch | undefined;
  readonly #renewing = new Set<string>();
  #renewed: Promise<unknown> = Promise.resolve(); // the end of the newest process that is renewed
  #renewedAt = -Infinity; // ms since the epoch

  /** @param options.disk that they all write to: while it is full, no process is restarted. */
  constructor(options: {
    logFolder: string;
    report: (line: string) => void;
    hurry: AbortSignal;
    disk?: DiskWatch;
  }) {
    this.#disk = options.disk;
    this.#logFolder = options.logFolder;
    this.#report = options.report;
    this.#hurry = options.hurry;
    this.failed = this.#watchers.signal;
  }

  logPath(name: string): string {
    return join(this.#logFolder, `${name}.log`);
  }

  /** Starts a member and watches it; resolves when it is no longer kept running. */
  start(member: Member): Promise<void> {
    return this.#watch(member.name, this.#keep(member));
  }

  /**
   * Takes over a process that was started elsewhere. Members of lower ranks need it until they have ended, so it is
   * started again even while those are stopped.
   *
   * @param again starts it again in the same place, unless its signal aborts; without it, its end fails the run.
   */
  adopt(
    name: string,
    process: ManagedProcess,
    member: Running['member'],
    again?: (signal: AbortSignal) => Promise<ManagedProcess>,
  ): void {
    const ending = new AbortController();
    this.#adopted.push({ stopRank: member.stopRank, ending });
    void this.#watch(name, this.#keepAdopted(name, process, member, ending.signal, again));
  }

  /**
   * Waits until every member is ready. Reports those that take long, such as an actor whose engine does not answer.
   *
   * @param slowMs interval of these reports; a report that would repeat the last one is left out.
   * @throws {FleetError} naming the members that are not ready by the deadline, with their own reasons.
   */
  async ready(
    names: readonly string[],
    deadlineMs: number,
    signal: AbortSignal,
    slowMs = 20_000,
  ): Promise<void> {
    const limit = AbortSignal.any([signal, this.failed, AbortSignal.timeout(deadlineMs)]);
    const find = (name: string) => this.#running.get(name);
    const late = await whatIsNotReady(names, { find, limit, report: this.#report, slowMs });
    this.failed.throwIfAborted();
    if (signal.aborted) return;
    if (late.length > 0) {
      throw new FleetError(
        `not ready after ${Math.round(deadlineMs / 1_000)} s:\n${late.map((line) => `  - ${line}`).join('\n')}\n` +
          `See ${this.#logFolder}; --ready-seconds gives them longer.`,
        1,
      );
    }
  }

  /** The disk trouble that a member's health endpoint reports. */
  diskTrouble(): Promise<string | undefined> {
    return reportedDiskTrouble(this.#running);
  }

  /**
   * Ends an adopted process, so that it is started again where it was. No member starts until it has ended. A call
   * while it is being ended waits for the same end.
   *
   * @returns whether this call has ended it: not if it is being started already.
   */
  async renew(name: string, graceMs: number): Promise<boolean> {
    const running = this.#running.get(name);
    if (running === undefined || this.#isStopping()) return false;
    if (this.#renewing.has(name)) {
      await this.#renewed;
      return false;
    }
    this.#renewing.add(name);
    this.#renewedAt = Date.now();
    this.#renewed = running.process.stop(graceMs, this.#hurry);
    await this.#renewed;
    return true;
  }

  /** Resolves when the process that is being renewed, if there is one, has ended. */
  async renewed(): Promise<void> {
    await this.#renewed;
  }

  /** Stops every process, lower ranks first, and returns when none is left. Safe to repeat. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    const members = [...this.#running.values()].map(({ member }) => member);
    const ranks = new Set([...members, ...this.#adopted].map(({ stopRank }) => stopRank));
    for (const rank of [...ranks].sort((a, b) => a - b)) {
      for (const { stopRank, ending } of this.#adopted) if (stopRank === rank) ending.abort();
      const peers = [...this.#running].filter(([, { member }]) => member.stopRank === rank);
      await Promise.all(peers.map(([name, running]) => this.#stopOne(name, running)));
    }
    await this.#watchers.settled();
    this.#running.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #watch(name: string, kept: Promise<void>): Promise<void> {
    const watched = kept.catch((caught: unknown) => {
      this.#fail(`${name} cannot be run: ${errorText(caught)}`, 1);
    });
    return this.#watchers.track(watched);
  }

  #isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Runs the member's processes, one after the other. */
  async #keep(member: Member): Promise<void> {
    const { name } = member;
    const restarts = new Restarts();
    while (!this.#isStopping()) {
      const command = await member.command();
      await this.#renewed; // the old server would refuse the member for good; a member waits for the new one
      if (this.#isStopping()) return;
      const process = new ManagedProcess(command, this.logPath(name));
      this.#running.set(name, { member, process, healthUrl: command.healthUrl });
      const exit = await process.exited;
      if (process.isStopping) return;
      this.#running.delete(name);

      const isEnd = exit.code === 0 || exit.code === givenUpCode; // its summary says which
      if (member.whenItEnds === 'finishes' && isEnd) return;
      // The renewed process may be why the member failed. If something else is wrong, the member fails again.
      if (exit.code === userErrorCode && process.startedAt <= this.#renewedAt) continue;
      if (await this.#endedOfFullDisk(name, exit, this.#stopping.signal)) continue;
      const delayMs = restarts.delayAfter(exit, Date.now() - process.startedAt);
      if (delayMs === undefined) {
        await this.#failBy(name, process, exit);
        return;
      }
      await this.#pause(name, process, exit, { restarts, delayMs, signal: this.#stopping.signal });
    }
  }

  async #keepAdopted(
    name: string,
    first: ManagedProcess,
    member: Running['member'],
    ending: AbortSignal,
    again?: (signal: AbortSignal) => Promise<ManagedProcess>,
  ): Promise<void> {
    const restarts = new Restarts();
    const isEnding = () => ending.aborted;
    for (let process = first; ;) {
      if (isEnding()) {
        // `stop` has listed the processes that it ends, and this one came up afterwards.
        await process.stop(member.stopGraceMs, this.#hurry);
        return;
      }
      this.#running.set(name, { member, process });
      const exit = await process.exited;
      const isRenewed = this.#renewing.delete(name);
      if (process.isStopping && (!isRenewed || isEnding())) return;
      this.#running.delete(name);
      await process.stop(0, this.#hurry); // the rest of its process group
      if (again === undefined) {
        await this.#failBy(name, process, exit);
        return;
      }
      if (!isRenewed && !(await this.#endedOfFullDisk(name, exit, ending))) {
        const delayMs = restarts.delayAfter(exit, Date.now() - process.startedAt);
        if (delayMs === undefined) {
          await this.#failBy(name, process, exit);
          return;
        }
        await this.#pause(name, process, exit, { restarts, delayMs, signal: ending });
      }
      if (isEnding()) return;
      process = await again(ending);
    }
  }

  /** Whether it ended because the disk was full; resolves when there is room, or `signal` aborts. */
  async #endedOfFullDisk(name: string, exit: Exit, signal: AbortSignal): Promise<boolean> {
    await this.#disk?.poll();
    if (this.#disk?.reason === undefined || signal.aborted) return false;
    this.#report(`${name} ${describeExit(exit)}; it is started again when the disk has room`);
    await this.#disk.room(signal);
    return true;
  }

  /** Reports that a process ended, and waits until it may be started again, or `signal` aborts. */
  async #pause(
    name: string,
    { logStart }: ManagedProcess,
    exit: Exit,
    { restarts, delayMs, signal }: { restarts: Restarts; delayMs: number; signal: AbortSignal },
  ): Promise<void> {
    const words = await lastWords(this.logPath(name), logStart);
    this.#report(
      `${name} ${describeExit(exit)}; starting it again in ${delayMs / 1_000} s (${restarts.count} of ${maxRestarts}).` +
        (words === '' ? '' : ` Its last words: ${words}`),
    );
    await sleep(delayMs, undefined, { signal }).catch(() => undefined);
  }

  async #stopOne(name: string, { process, member }: Running): Promise<void> {
    // After a failure little can still be saved.
    const most = this.#disk?.reason !== undefined ? fullDiskGraceMs : failedGraceMs;
    const graceMs =
      this.failed.aborted || this.#disk?.reason !== undefined
        ? Math.min(member.stopGraceMs, most)
        : member.stopGraceMs;
    const exit = await process.stop(graceMs, this.#hurry);
    // Only the learner has something to save, so only its exit code counts; nats-server answers SIGTERM with code 1.
    // SIGTERM itself ends a learner only before it has begun anything.
    const isAmiss =
      member.whenItEnds === 'finishes' && exit.code !== 0 && exit.signal !== 'SIGTERM';
    if (isAmiss || exit.signal === 'SIGKILL') {
      this.#report(
        `${name} ${describeExit(exit)} while it was asked to end; see ${this.logPath(name)}`,
      );
    }
  }

  async #failBy(name: string, { logStart }: ManagedProcess, exit: Exit): Promise<void> {
    if (this.#isStopping()) return;
    const path = this.logPath(name);
    if (exit.code === userErrorCode) {
      // Its error names what the user has to change; the rest of its log is less useful.
      const words = (await lastWords(path, logStart)).replaceAll('\n', '\n  ');
      this.#fail(`${name} ${describeExit(exit)}:\n  ${words}\nIts log is ${path}`, userErrorCode);
      return;
    }
    const tail = (await logTail(path, 25, logStart)).map((line) => `  | ${line}`);
    this.#fail([`${name} ${describeExit(exit)}; the end of ${path}:`, ...tail].join('\n'), 1);
  }

  #fail(message: string, exitCode: number): void {
    this.#watchers.abort(new FleetError(message, exitCode));
  }
}
