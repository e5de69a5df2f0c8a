import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  Curriculum,
  type CurriculumOptions,
  ReplayDraw,
  ReplayPool,
} from '../../../learner/tickets/curriculum.js';
import { difficultiesOf, DifficultyMix } from '../../../learner/tickets/difficulty-mix.js';
import { EpochOrder } from '../../../learner/tickets/epoch-order.js';
import { UserError } from '../../../shared/base/errors.js';
import { createRandom } from '../../../shared/base/random.js';
import { encode, decode } from '../../../shared/wire/codec.js';
import { CurriculumState } from '../../../shared/wire/ledger.js';

const options = { seed: 3, groupSize: 4, replayShare: 0.5, size: 50, margin: 6 };
const start = { ...options, state: undefined };
const threeDifficulties = difficultiesOf(
  Array.from({ length: 50 }, (_, i) => ({ difficulty: i < 5 ? '0' : i < 20 ? '1' : '2' })),
);
const nothingConsumed = { isConsumed: () => false };

describe('a curriculum that replays half of the time', () => {
  it('the curriculum follows the epochs until a problem was tried', () => {
    const [curriculum, epochs] = [new Curriculum(start), new EpochOrder(3, 50)];
    for (let order = 0; order < 120; order++) {
      assert.equal(curriculum.problemAt(order), epochs.problemAt(order));
    }
  });

  it('the curriculum replays the problem with signal, and follows the epochs otherwise', () => {
    const [curriculum, epochs] = [new Curriculum(start), new EpochOrder(3, 50)];
    curriculum.record(0, 7, { rollouts: 4, correct: 2 });
    curriculum.checkpoint({ nextOrder: 10, ...nothingConsumed });
    const orders = Array.from({ length: 200 }, (_, i) => 10 + 6 + i);
    const replayed = orders.filter((order) => curriculum.problemAt(order) === 7);
    assert(replayed.length > 70 && replayed.length < 130, `${replayed.length} of 200`);
    for (const order of orders) {
      if (!replayed.includes(order)) {
        assert.equal(curriculum.problemAt(order), epochs.problemAt(order));
      }
    }
  });

  it('a checkpoint does not change tickets that are issued or about to be issued', () => {
    const [curriculum, before] = [new Curriculum(start), new Curriculum(start)];
    curriculum.record(0, 7, { rollouts: 4, correct: 2 });
    curriculum.checkpoint({ nextOrder: 10, ...nothingConsumed });
    for (let order = 0; order < 16; order++) {
      assert.equal(curriculum.problemAt(order), before.problemAt(order));
    }
  });

  it('tickets beyond a checkpoint wait until it is in the ledger', () => {
    const curriculum = new Curriculum(start);
    assert(curriculum.isProblemFinal(1_000));
    const first = curriculum.checkpoint({ nextOrder: 10, ...nothingConsumed });
    const second = curriculum.checkpoint({ nextOrder: 12, ...nothingConsumed });
    assert.deepEqual([curriculum.isProblemFinal(15), curriculum.isProblemFinal(16)], [true, false]);
    first.written();
    assert.deepEqual([curriculum.isProblemFinal(17), curriculum.isProblemFinal(18)], [true, false]);
    second.written();
    assert(curriculum.isProblemFinal(18));
  });

  it('replay raises the share of groups with signal if most problems have none', () => {
    const groupSize = 8;
    const options = { seed: 1, size: 400, groupSize, margin: 0, state: undefined };
    // One problem in ten is solved half of the time, the others always or never.
    const solveRate = (problem: number) => (problem % 10 === 0 ? 0.5 : problem % 2);
    const shareWithSignal = (replayShare: number) => {
      const [curriculum, random] = [new Curriculum({ ...options, replayShare }), createRandom('')];
      let mixed = 0;
      for (let order = 0; order < 2_000; order++) {
        const problem = curriculum.problemAt(order);
        const correct = Array.from({ length: groupSize }, () => random.next()).filter(
          (chance) => chance < solveRate(problem),
        ).length;
        curriculum.record(order, problem, { rollouts: groupSize, correct });
        if (correct > 0 && correct < groupSize) mixed++;
        if (order % 50 === 49) {
          curriculum.checkpoint({ nextOrder: order + 1, isConsumed: () => true }).written();
        }
      }
      return mixed / 2_000;
    };
    const [fresh, replayed] = [shareWithSignal(0), shareWithSignal(0.5)];
    assert(Math.abs(fresh - 0.1) < 0.02, `${fresh}`);
    assert(replayed > 2 * fresh, `${replayed} against ${fresh}`);
  });

  it('the curriculum forgets the problems of consumed tickets', () => {
    const curriculum = new Curriculum(start);
    const table = { nextOrder: 4, isConsumed: (order: number) => order < 3 };
    const { state } = curriculum.checkpoint(table);
    assert.deepEqual(
      state.decided.map(([order]) => order),
      [3, 4, 5, 6, 7, 8, 9],
    );
    assert.throws(() => curriculum.problemAt(2), /ticket 2 is consumed/);
  });

  it('a curriculum of difficulties goes where groups have signal, and comes back once that is elsewhere', () => {
    const size = 1_000;
    const difficulties = difficultiesOf(
      Array.from({ length: size }, (_, i) => ({ difficulty: i % 2 === 0 ? 'hard' : 'easy' })),
    );
    const curriculum = new Curriculum({ ...start, replayShare: 0, size, difficulties });
    let order = 0;
    /** The share of the next tickets that is hard, if the groups of one difficulty have signal and those of the other have none. */
    const hardShare = (withSignal: 'easy' | 'hard') => {
      let hard = 0;
      for (const end = order + 2_000; order < end; order++) {
        const problem = curriculum.problemAt(order);
        if (problem % 2 === 0) hard++;
        const correct = (problem % 2 === 0) === (withSignal === 'hard') ? 2 : 0;
        curriculum.record(order, problem, { rollouts: 4, correct });
        if (order % 10 === 9) {
          curriculum.endStep();
          const isConsumed = (it: number) => it <= order;
          curriculum.checkpoint({ nextOrder: order + 1, isConsumed }).written();
        }
      }
      return hard / 2_000;
    };
    const shares = [hardShare('easy'), hardShare('easy'), hardShare('hard'), hardShare('hard')];
    assert(shares[1]! > 0.04 && shares[1]! < 0.08, `${shares.join()}: a twentieth is tried anyway`);
    assert(shares[3]! > 0.85 && shares[3]! < 0.96, shares.join());
  });

  it('a restored curriculum chooses the difficulties as the one that made the checkpoint', () => {
    const chosen = { ...options, replayShare: 0, difficulties: threeDifficulties };
    const curriculum = new Curriculum({ ...chosen, state: undefined });
    const tryAll = (withSignal: (problem: number) => boolean) => {
      for (let order = 0; order < 50; order++) {
        const problem = curriculum.problemAt(order);
        const correct = withSignal(problem) ? 2 : 0;
        curriculum.record(order, problem, { rollouts: 4, correct });
      }
      curriculum.endStep();
    };
    tryAll((problem) => problem < 20);
    const { results } = curriculum;
    tryAll((problem) => problem >= 20); // after the weights of the checkpoint
    const { state } = curriculum.checkpoint({ nextOrder: 50, ...nothingConsumed }, results);
    const restored = new Curriculum({ ...chosen, state: overTheWire(state) });
    const problems = (of: Curriculum) => Array.from({ length: 300 }, (_, i) => of.problemAt(i));
    assert.deepEqual(problems(restored), problems(curriculum));
    const late = problems(restored).slice(56);
    assert(late.filter((problem) => problem < 20).length > late.length / 2);
  });

  it('groups of replayed problems do not change the difficulties', () => {
    const difficulties = difficultiesOf(
      Array.from({ length: 50 }, (_, i) => ({ difficulty: i < 25 ? 'a' : 'b' })),
    );
    const curriculum = new Curriculum({ ...start, difficulties });
    const fresh = curriculum.problemAt(0);
    curriculum.record(0, fresh, { rollouts: 4, correct: 2 });
    const other = Array.from({ length: 50 }, (_, problem) => problem).find((problem) =>
      curriculum.isReplay(1, problem),
    )!;
    curriculum.record(1, other, { rollouts: 4, correct: 2 });
    assert.deepEqual(curriculum.results.difficulties, []); // until the step ends
    curriculum.endStep();
    assert.deepEqual(curriculum.results.difficulties, [[fresh < 25 ? 'a' : 'b', 1, 1]]);
    assert.equal(curriculum.results.tried.length, 2);
  });

  /**
   * A run with many crashes: tickets are issued and consumed, and checkpoints of the current or an earlier
   * moment are taken and written later. Whatever happens, an issued ticket keeps its problem.
   */
  for (const [name, difficulties] of [
    ['a ticket keeps its problem through any sequence of crashes', undefined],
    ['a ticket of a chosen difficulty keeps its problem through any crashes', threeDifficulties],
  ] as const) {
    it(name, () => {
      keepsProblems({ ...options, difficulties });
    });
  }

  function keepsProblems(options: Omit<CurriculumOptions, 'state'>): void {
    const move = fc.record({
      what: fc.constantFrom(
        'issue',
        'issue',
        'issue',
        'consume',
        'consume',
        'snapshot',
        'take',
        'write',
        'crash',
      ),
      which: fc.nat(1_000),
      correct: fc.nat(4),
    });
    fc.assert(
      fc.property(fc.array(move, { maxLength: 300 }), (moves) => {
        const issued = new Map<number, number>(); // in any session
        let [nextOrder, consumed] = [0, new Set<number>()];
        let curriculum = new Curriculum({ ...options, state: undefined });
        let ledger = { nextOrder, consumed: [...consumed], state: undefined as unknown };
        const now = () => ({
          nextOrder,
          consumed: [...consumed],
          results: curriculum.results,
        });
        let snapshot: ReturnType<typeof now> | undefined;
        let taken: { entry: typeof ledger; written: () => void }[] = [];
        for (const { what, which, correct } of moves) {
          if (what === 'issue' && curriculum.isProblemFinal(nextOrder)) {
            const problem = curriculum.problemAt(nextOrder);
            assert.equal(issued.get(nextOrder) ?? problem, problem, `ticket ${nextOrder}`);
            issued.set(nextOrder++, problem);
          } else if (what === 'consume') {
            const open = [...issued.keys()].filter(
              (order) => order < nextOrder && !consumed.has(order),
            );
            const order = open[which % Math.max(1, open.length)];
            if (order === undefined) continue;
            assert.equal(curriculum.problemAt(order), issued.get(order), `ticket ${order}`);
            consumed.add(order);
            curriculum.record(order, issued.get(order)!, { rollouts: 4, correct });
            if (which % 3 === 0) curriculum.endStep();
          } else if (what === 'snapshot') {
            snapshot ??= now();
          } else if (what === 'take') {
            const { results, ...entry } = snapshot ?? now();
            snapshot = undefined;
            const isConsumed = (order: number) => entry.consumed.includes(order);
            const { state, written } = curriculum.checkpoint({ nextOrder, isConsumed }, results);
            taken.push({ entry: { ...entry, state }, written });
          } else if (what === 'write' && taken.length > 0) {
            const { entry, written } = taken.shift()!;
            ledger = entry;
            written();
          } else if (what === 'crash') {
            nextOrder = ledger.nextOrder;
            consumed = new Set(ledger.consumed);
            [taken, snapshot] = [[], undefined];
            const state = ledger.state as CurriculumState | undefined;
            curriculum = new Curriculum({ ...options, state: state && overTheWire(state) });
          }
        }
      }),
      { numRuns: 300 },
    );
  }
});

describe('the difficulties of the problems', () => {
  it('rehearsed problems keep their share, whatever the difficulties show', () => {
    const difficulties = difficultiesOf(
      Array.from({ length: 100 }, (_, i) => ({
        difficulty: i % 2 === 0 ? 'a' : 'b',
        ...(i < 30 && { isRehearsed: true }),
      })),
    );
    const mix = new DifficultyMix(0, difficulties, [['a', 50, 50]]);
    const random = createRandom('');
    const problems = Array.from({ length: 5_000 }, (_, order) =>
      mix.problemAt(order, random.next()),
    );
    const share = (has: (problem: number) => boolean) => problems.filter(has).length / 5_000;
    assert(Math.abs(share((i) => i < 30) - 0.3) < 0.02);
    // Signal of nearly all groups, and of one half where none is known.
    const ofA = 0.05 + (0.9 * (50.5 / 51)) / (50.5 / 51 + 0.5); // of as many problems each
    assert(Math.abs(share((i) => i >= 30 && i % 2 === 0) - 0.7 * ofA) < 0.02);
    mix.record(0, true); // rehearsed
    mix.endStep();
    assert.deepEqual(mix.results, [['a', 50, 50]]);
  });

  it('a difficulty repeats no problem within as many tickets of the run as it has problems', () => {
    const mix = new DifficultyMix(0, threeDifficulties, []);
    const random = createRandom('');
    const drawn = Array.from({ length: 30 }, (_, order) => mix.problemAt(order, random.next()));
    const ofHardest = drawn.filter((problem) => problem >= 20);
    assert(ofHardest.length > 10);
    assert.equal(new Set(ofHardest).size, ofHardest.length);
    assert(mix.mayBeAt(7, mix.problemAt(7, 0.5)));
    assert(!mix.mayBeAt(7, mix.problemAt(8, 0.5)));
  });

  it('problems of one difficulty leave nothing to choose', () => {
    const one = { difficulty: '3 numbers' };
    assert.throws(
      () => difficultiesOf([one, one, { difficulty: '4 numbers', isRehearsed: true }]),
      (error) => {
        assert(error instanceof UserError);
        assert.match(error.message, /have one, 3 numbers; give problems of several, such as/);
        return true;
      },
    );
  });
});

describe('the pool of problems that were tried', () => {
  it('a replay draw picks problems in proportion to their signal', () => {
    // Beta(4.5, 0.5) and Beta(2.5, 2.5), groups of two: 2·ab / ((a + b)(a + b + 1)).
    const [sure, open] = [(2 * 4.5 * 0.5) / 30, (2 * 2.5 * 2.5) / 30];
    const tried = [
      [8, 4, 4],
      [9, 4, 2],
    ] as const;
    const draw = new ReplayDraw(tried, 2);
    const boundary = sure / (sure + open);
    assert.deepEqual(
      [0, boundary - 1e-6, boundary + 1e-6, 0.999].map((chance) => draw.at(chance)),
      [8, 8, 9, 9],
    );
    assert.equal(new ReplayDraw([], 2).at(0.5), undefined);
  });

  it('the replay pool forgets the problems with the least signal when there are too many', () => {
    const pool = new ReplayPool(4, []);
    for (let problem = 0; problem < 5_000; problem++) {
      pool.record(problem, { rollouts: 4, correct: problem % 2 === 0 ? 4 : 2 });
    }
    const kept = pool.snapshot().map(([problem]) => problem);
    assert.equal(kept.length, 4_096);
    assert.equal(kept.filter((problem) => problem % 2 === 1).length, 2_500);
    assert(!kept.includes(0) && kept.includes(4_998)); // the least recently updated go first
    assert.equal(pool.snapshot().length, 4_096);
  });
});

/** The state after a round trip through the ledger. */
function overTheWire(state: CurriculumState): CurriculumState {
  return decode(CurriculumState, 'ledger', encode(CurriculumState, state));
}
