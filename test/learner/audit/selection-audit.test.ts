import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  SelectionAudit,
  type ScoredText,
  type SelectionAuditOptions,
} from '../../../learner/audit/selection-audit.js';
import { createRandom, tokenDraws } from '../../../shared/base/random.js';
import type { Certificate } from '../../../shared/wire/canary.js';
import type { Rollout, RolloutGroup } from '../../../shared/wire/rollout-group.js';
import { silent } from '../../support/log.js';
import { rollout, rolloutGroup, scoredGroup, ticket } from '../../support/messages.js';
import { gate } from '../../support/waiting.js';

/** At every place of every text, by every version. */
const probabilities = [0.1, 0.4, 0.05, 0.25, 0.2];
const vocabSize = probabilities.length;
const length = 12;

function scoreOf(text: Int32Array): ScoredText {
  const logprob = (token: number) => Math.log(probabilities[token]!);
  const each = Array.from(probabilities, (_, token) => token);
  const tokens = Int32Array.from(text, () => 0);
  const repeated = [...tokens].flatMap(() => each);
  return {
    logprobs: Float32Array.from(text, logprob),
    top: {
      k: vocabSize,
      tokens: Int32Array.from(repeated),
      logprobs: Float32Array.from(repeated, logprob),
    },
  };
}
const score = (_: number, text: Int32Array) => Promise.resolve(scoreOf(text));

/** The tokens that a ticket's random numbers choose. */
function drawn(seed: number, index: number) {
  const draw = tokenDraws(seed, index);
  return Int32Array.from({ length }, () => {
    let left = draw();
    const token = probabilities.findIndex((probability) => (left -= probability) < 0);
    return token === -1 ? vocabSize - 1 : token;
  });
}

const onnx: Certificate = { canaries: [], engine: 'onnxruntime-node 1', arithmetic: 'fp32' };

/** A group of four rollouts whose tokens are drawn by its ticket, or by another seed. */
function groupOf(
  seed: number,
  { actor = 'a', by = seed, certificate = onnx, versions = [[3, length]] as Rollout['versions'] },
): RolloutGroup {
  const rollouts = [0, 1, 2, 3].map((r) => rollout(length, { tokens: drawn(by, r), versions }));
  const samplingParams = { temperature: 1, maxTokens: length, seed };
  const own = ticket({ ticketId: `t-${seed}`, groupSize: 4, samplingParams });
  return rolloutGroup({
    actor,
    ticket: own,
    rollouts,
    certificate,
    promptTokens: Int32Array.of(1, 2),
  });
}

function auditing(over: Partial<SelectionAuditOptions> = {}) {
  const convicted: unknown[][] = [];
  const events: unknown[][] = [];
  const quarantined = new Set<string>();
  const audit = new SelectionAudit({
    ...{ share: 1, seed: 0, vocabSize, trainer: 'fp32', isAdapterRounded: false },
    ...{ maxStepsOffPolicy: 1, requireDraws: false, onSelection: 'report', proof: Math.log(1e9) },
    audit: {
      isQuarantined: (actor) => quarantined.has(actor),
      convict: ({ actor, why, groups }) => {
        quarantined.add(actor);
        convicted.push([actor, why, groups]);
        return Promise.resolve();
      },
    },
    emit: ({ actor, why }) => {
      events.push([actor, why]);
      return Promise.resolve();
    },
    log: silent,
    ...over,
  });
  return { audit, convicted, events };
}

describe('the replay of a group from the random numbers of its ticket', () => {
  it('groups that are drawn by their tickets pass, and two that are drawn by others convict', async () => {
    const { audit, convicted } = auditing();
    for (let seed = 0; seed < 50; seed++) await audit.examine(groupOf(seed, {}), score);
    await audit.examine(groupOf(50, { by: 1_000 }), score);
    await audit.examine(groupOf(51, { by: 1_001, actor: 'b' }), score);
    assert.deepEqual(convicted, []);
    await audit.examine(groupOf(52, { by: 1_002 }), score);
    assert.deepEqual(convicted, [['a', 'replay', 2]]);
  });

  it('one token that the numbers do not choose is enough, and the order of rollouts counts', async () => {
    const { audit, convicted } = auditing();
    for (const [seed, actor] of [
      [1, 'token'],
      [2, 'token'],
      [3, 'order'],
      [4, 'order'],
    ] as const) {
      const group = groupOf(seed, { actor });
      const [first, ...others] = group.rollouts;
      const tokens = first!.tokens.with(5, (first!.tokens[5]! + 1) % vocabSize);
      const rollouts = actor === 'token' ? [{ ...first!, tokens }, ...others] : [...others, first!];
      await audit.examine({ ...group, rollouts }, score);
    }
    assert.deepEqual(convicted, [
      ['token', 'replay', 2],
      ['order', 'replay', 2],
    ]);
  });

  it('after a group that differs, all groups of its actor are looked at', async () => {
    const { audit } = auditing({ share: 1e-9 });
    const next = groupOf(7, {});
    assert.equal(audit.isChosen(next), false);
    await audit.examine(groupOf(6, { by: 1_000 }), score);
    assert.equal(audit.isChosen(next), true);
    assert.equal(audit.isChosen(groupOf(7, { actor: 'b' })), false);
  });

  it('asks at once for the tokens of the first version of each rollout, and for those of like rollouts once', async () => {
    const { audit, convicted } = auditing();
    const asked: number[][] = [];
    const open = gate();
    const slowly = async (version: number, text: Int32Array) => {
      asked.push([version, ...text]);
      if (asked.length === 3) open.open();
      await open.opened;
      return scoreOf(text);
    };
    const group = groupOf(3, {
      versions: [
        [3, 4],
        [4, length - 4],
      ],
    });
    const [one, two, three] = group.rollouts;
    const rollouts = [one!, two!, three!, { ...two!, tokens: two!.tokens.with(5, 0) }];
    await audit.examine({ ...group, rollouts }, slowly);
    const texts = [one!, two!, three!].map(({ tokens }) => [3, 1, 2, ...tokens.subarray(0, 4)]);
    assert.deepEqual(asked, texts);
    assert.deepEqual(convicted, []);
  });

  it('tokens after an adoption are not judged, since their cache is of older weights; those before it are', async () => {
    const { audit, convicted } = auditing();
    const versions: Rollout['versions'] = [
      [3, 4],
      [4, length - 4],
    ];
    /** Of each rollout, another token at a place. */
    const off = (seed: number, place: number) => {
      const group = groupOf(seed, { versions });
      const rollouts = group.rollouts.map((one) => ({
        ...one,
        tokens: one.tokens.with(place, (one.tokens[place]! + 2) % vocabSize),
      }));
      return { ...group, rollouts };
    };
    for (let seed = 0; seed < 10; seed++) await audit.examine(off(seed, 4), score);
    assert.deepEqual(convicted, []);
    for (let seed = 0; seed < 2; seed++) await audit.examine(off(seed, 3), score);
    assert.deepEqual(convicted, [['a', 'replay', 2]]);
  });

  it('an actor is not convicted for single tokens if the backend computes otherwise than its sampler', async () => {
    for (const over of [{ trainer: 'bf16' }, { isAdapterRounded: true }] as const) {
      const { audit, convicted } = auditing(over);
      for (let seed = 0; seed < 2; seed++) {
        await audit.examine(groupOf(seed, { by: seed + 1_000 }), score);
      }
      assert.deepEqual(convicted, []);
    }
  });

  it('an actor with another engine is convicted only if draws by the ticket are required', async () => {
    const certificate: Certificate = { ...onnx, engine: 'vLLM 0.32' };
    for (const requireDraws of [false, true]) {
      const { audit, convicted } = auditing({ requireDraws });
      for (let seed = 0; seed < 2; seed++) {
        await audit.examine(groupOf(seed, { by: seed + 1_000, certificate }), score);
      }
      assert.equal(convicted.length, Number(requireDraws));
    }
  });

  it('draws by the ticket are required of actors even if the backend gives no probabilities', async () => {
    const { audit, convicted } = auditing({ requireDraws: true });
    const certificate: Certificate = { ...onnx, engine: 'vLLM 0.32' };
    for (let seed = 0; seed < 2; seed++) {
      await audit.examine(groupOf(seed, { certificate }), () => Promise.resolve(undefined));
      await audit.examine(groupOf(seed, { actor: 'b' }), () => Promise.resolve(undefined));
    }
    assert.deepEqual(convicted, [['a', 'replay', 2]]);
  });

  it('no actor is convicted when the backend fails, lacks the version or gives no finite logprobs', async () => {
    const { audit, convicted } = auditing();
    const broken = (_: number, text: Int32Array) => {
      const scored = scoreOf(text);
      return Promise.resolve({ ...scored, logprobs: scored.logprobs.fill(NaN) });
    };
    for (const give of [
      () => Promise.reject(new Error('away')),
      () => Promise.resolve(undefined),
      broken,
    ]) {
      for (let seed = 0; seed < 2; seed++) await audit.examine(groupOf(seed, { by: 1_000 }), give);
    }
    assert.deepEqual(convicted, []);
  });

  it('an actor that sends the likelier of two draws is reported, whatever its engine', async () => {
    const { audit, events } = auditing();
    const certificate: Certificate = { ...onnx, engine: 'vLLM 0.32' };
    const sum = (tokens: Int32Array) => tokens.reduce((a, v) => a + Math.log(probabilities[v]!), 0);
    for (let seed = 0; seed < 200; seed++) {
      const [one, other] = [seed, seed + 1_000].map((by) => groupOf(seed, { by, certificate }));
      await audit.examine({ ...one!, actor: 'honest' }, score);
      const rollouts = one!.rollouts.map((each, r) =>
        sum(each.tokens) > sum(other!.rollouts[r]!.tokens) ? each : other!.rollouts[r]!,
      );
      await audit.examine({ ...one!, rollouts }, score);
    }
    assert.deepEqual(events, [['a', 'selection']]);
  });
});

describe('the comparison of what actors solve', () => {
  /** Versions of 8 groups by each of three actors, one of which draws `tries` times where it is wrong. */
  async function run(
    versions: number,
    tries: number,
    over: Partial<SelectionAuditOptions> = {},
    attempt = 0,
  ) {
    const found = auditing(over);
    const random = createRandom('solve rates');
    for (let version = 0; version < versions; version++) {
      for (let g = 0; g < 24; g++) {
        const actor = ['a', 'b', 'c'][g % 3]!;
        const difficulty = random.next();
        const rate = 0.3 * difficulty;
        const isRight = () => random.next() < (actor === 'a' ? 1 - (1 - rate) ** tries : rate);
        const rollouts = Array.from({ length: 8 }, () => rollout(2, { versions: [[version, 2]] }));
        const group = rolloutGroup({ actor, ticket: ticket({ groupSize: 8, attempt }), rollouts });
        const scored = scoredGroup({ group });
        const scores = scored.scores.map((each) => ({ ...each, isCorrect: isRight() }));
        await found.audit.solved({ ...scored, scores });
      }
    }
    return found;
  }

  it('an actor that draws again where it is wrong is reported, and an honest fleet is not', async () => {
    assert.deepEqual((await run(100, 2)).events, [['a', 'solve_rate']]);
    const honest = await run(400, 1);
    assert.deepEqual([honest.events, honest.convicted], [[], []]);
  });

  it('the actor is quarantined if the setting says so', async () => {
    const { events, convicted } = await run(100, 2, { onSelection: 'quarantine' });
    assert.deepEqual(
      [events, convicted.map(([actor, why]) => [actor, why])],
      [[], [['a', 'solve_rate']]],
    );
  });

  it('tickets that are issued again are left out, since they are not handed out blindly', async () => {
    assert.deepEqual((await run(100, 2, {}, 1)).events, []);
  });
});
