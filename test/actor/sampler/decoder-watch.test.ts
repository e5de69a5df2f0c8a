import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Worker } from 'node:worker_threads';
import { DecoderWatch, ProcessorWaits } from '../../../actor/sampler/decoder-watch.js';

/** A decoder that draws tokens, by the second of simulated time. */
class SimulatedDecoder {
  starvedShare = 0; // of each second: it is ready to compute and gets no processor
  now = 0; // seconds
  isBusy = true;
  readonly watch: DecoderWatch;

  constructor(stallSeconds?: number) {
    this.watch = new DecoderWatch(stallSeconds, 0, { since: () => this.starvedShare });
  }

  /** @returns the second in which it is given up, if it is. */
  runs(seconds: number): number | undefined {
    for (let i = 1; i <= seconds; i += 1) {
      this.now += 1;
      if (this.watch.look(1_000 * this.now, this.isBusy) !== undefined) return i;
    }
    return undefined;
  }

  /** Draws tokens, each after so much work. */
  draws(tokens: number, secondsOfWork: number): void {
    for (let i = 0; i < tokens; i += 1) {
      const seconds = Math.round(secondsOfWork / (1 - this.starvedShare));
      assert.equal(this.runs(seconds), undefined, `token ${i}`);
      this.watch.drew();
    }
  }
}

describe('a watch for a decoder that hangs', () => {
  it('a decoder is not given up while the machine gives it a fortieth of a processor, however long a token takes', () => {
    const decoder = new SimulatedDecoder();
    decoder.draws(5, 2); // quiet, so the limit is a minute
    decoder.starvedShare = 39 / 40;
    decoder.draws(5, 50); // 2000 seconds each
  });

  it('a decoder that is blocked is given up after a minute of silence, on a busy machine as well', () => {
    const decoder = new SimulatedDecoder();
    decoder.starvedShare = 39 / 40;
    decoder.draws(3, 2);
    decoder.starvedShare = 0; // a thread that waits for a lock is not ready to run
    assert.equal(decoder.runs(200), 61);
  });

  it('a decoder that loops is given up after a minute of processor time', () => {
    const decoder = new SimulatedDecoder();
    decoder.draws(3, 2);
    decoder.starvedShare = 0.75; // it gets a quarter of a processor, and wastes it
    assert.equal(decoder.runs(1_000), 241);
  });

  it('an answer without a token ends the silence and says nothing of the pace', () => {
    const decoder = new SimulatedDecoder();
    assert.equal(decoder.runs(500), undefined);
    decoder.watch.answered(); // an adapter has been read; the weights are still to come
    assert.equal(decoder.runs(600), undefined);
    decoder.watch.answered();
    assert.equal(decoder.runs(601), 601);
  });

  it('time in which the process was suspended does not count', () => {
    const decoder = new SimulatedDecoder(30);
    for (let i = 0; i < 14; i += 1) {
      decoder.now += 3_600;
      assert.equal(decoder.watch.look(1_000 * decoder.now, true), undefined);
    }
    assert.equal(decoder.runs(3), 3);
  });

  it('a decoder without work is never silent', () => {
    const decoder = new SimulatedDecoder(30);
    decoder.isBusy = false;
    assert.equal(decoder.runs(100), undefined);
    decoder.isBusy = true;
    assert.equal(decoder.runs(100), 31);
  });

  it('the threads of a decoder are looked at only while it has work', () => {
    let looks = 0;
    const since = () => {
      looks += 1;
      return 0;
    };
    const watch = new DecoderWatch(30, 0, { since });
    watch.look(1_000, false);
    assert.equal(looks, 0);
    watch.look(2_000, true);
    assert.equal(looks, 1);
  });
});

describe('the waits of threads for a processor', () => {
  let folder: string;
  before(async () => (folder = await mkdtemp(join(tmpdir(), 'waits-'))));
  after(() => rm(folder, { recursive: true }));

  /** As Linux writes it: time on a processor, time in the queue, turns. */
  async function write(thread: string, ranNs: number, waitedNs: number): Promise<void> {
    await mkdir(join(folder, thread), { recursive: true });
    await writeFile(join(folder, thread, 'schedstat'), `${ranNs} ${waitedNs} 17\n`);
  }

  it('the longest wait of one thread counts, that of the main thread and those before the first look do not', async () => {
    const waits = new ProcessorWaits(folder, '10');
    await write('10', 1e9, 5e9);
    await write('11', 1e9, 7e9);
    await write('12', 1e9, 1e9);
    assert.equal(waits.since(), 0);
    assert.equal(waits.since(), 0);
    await write('10', 1e9, 99e9);
    await write('11', 9e9, 7.5e9);
    await write('12', 9e9, 1.25e9);
    await write('13', 9e9, 50e9); // new
    assert.equal(waits.since(), 0.5);
    await rm(join(folder, '11'), { recursive: true });
    await mkdir(join(folder, '14')); // it ends as it is read
    await write('12', 9e9, 1.5e9);
    assert.equal(waits.since(), 0.25);
  });

  it('nothing counts where the system does not say how long threads wait', async () => {
    await writeFile(join(folder, '12', 'schedstat'), '');
    const waits = [new ProcessorWaits(join(folder, 'none')), new ProcessorWaits(folder, '10')];
    for (const wait of waits) assert.deepEqual([wait.since(), wait.since()], [0, 0]);
  });

  const isLinux = existsSync('/proc/self/task');
  it(
    'threads of this process wait if more of them loop than there are processors',
    { skip: !isLinux },
    async () => {
      const waits = new ProcessorWaits();
      const loops = Array.from(
        { length: availableParallelism() + 1 },
        () => new Worker('for (;;);', { eval: true }),
      );
      try {
        waits.since();
        let waited = 0;
        while (waited < 0.05) {
          await new Promise((resolve) => setTimeout(resolve, 10));
          waited += waits.since();
        }
      } finally {
        await Promise.all(loops.map((loop) => loop.terminate()));
      }
    },
  );
});
