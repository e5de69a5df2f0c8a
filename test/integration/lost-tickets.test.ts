import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { ticketBound } from '../../shared/rl/capacity.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

const place = TrainingPlace.shared();

const bound = ticketBound(1, 4); // for the learner of a training ground

describe('a run whose queues lose what they had acknowledged', { timeout: 240_000 }, () => {
  it('a learner replaces tickets that are in no queue and waits for none of them', async () => {
    await using ground = await TrainingGround.at(place(), 'lost');
    const { broker } = ground;
    const { streams } = broker.names;
    const keep = async (queue: 'tickets' | 'rollouts', count: number) => {
      return (await broker.link.jsm.streams.purge(streams[queue], { keep: count })).purged;
    };
    const learner = ground.learner({ 'max-steps': 4, 'tickets-ahead': bound });
    await until(async () => (await broker.depths()).tickets === bound);
    const lostTickets = await keep('tickets', 5);
    ground.actor('actor-0');
    await until(async () => {
      const { tickets, rollouts } = await broker.depths();
      return tickets === 0 && rollouts >= 5; // more if lost tickets are reissued before that
    });
    const lostGroups = await keep('rollouts', 2);
    await ground.startScoring();

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups, steps } = Summary.parse(await ground.summary());
    assert.equal(lostTickets, bound - 5);
    assert.deepEqual([steps, groups.trained, groups.dead], [4, 16, lostTickets + lostGroups]);
  });

  it('an evaluation finishes without the tickets that are in no queue', async () => {
    await using ground = await TrainingGround.at(place(), 'lost-eval');
    const { broker } = ground;
    const learner = ground.learner({ 'max-steps': 1, 'eval-problems': 4, 'eval-samples': 2 });
    const asked = 2 * 4; // each problem sampled, then greedily
    const { jsm } = broker.link;
    const stream = broker.names.streams.tickets;
    const filter = broker.names.subjects.tickets('eval');
    await until(async () => (await broker.depths()).tickets >= asked);
    await until(async () => {
      const { state } = await jsm.streams.info(stream, { subjects_filter: filter });
      return state.subjects?.[filter] === asked;
    });
    await jsm.streams.purge(stream, { filter, keep: 5 });
    await ground.startScoring();
    ground.actor('actor-0');

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const [before, after] = await ground.evals();
    assert.deepEqual([before?.lost, after?.lost], [asked - 5, 0]);
  });
});
