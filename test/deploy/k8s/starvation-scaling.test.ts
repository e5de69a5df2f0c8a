import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { mean } from '../../../shared/base/statistics.js';
import { kustomize } from '../../support/kubernetes.js';
import { scalingOf, type ScalingRules } from '../../support/workloads.js';

/** The rules of Kubernetes by default. */
const usual: Required<ScalingRules> = {
  scaleUp: {
    policies: [
      { type: 'Percent', value: 100, periodSeconds: 15 },
      { type: 'Pods', value: 4, periodSeconds: 15 },
    ],
  },
  scaleDown: { policies: [{ type: 'Percent', value: 100, periodSeconds: 15 }] },
};

const tickSeconds = 15;
const threshold = 0.2;
const tolerance = 0.1;
const averagedTicks = 300 / tickSeconds;
const stabilizedTicks = 300 / tickSeconds; // of scaling down
const most = 64;

/**
 * The numbers of actors in four hours, by the algorithm in the documentation of the HorizontalPodAutoscaler.
 *
 * @param enough actors, with which the learner never waits. With fewer, it waits in proportion.
 */
function actorsOver(enough: number, start: number, rules: Required<ScalingRules>): number[] {
  const counts = [start];
  const idle: number[] = [];
  const wanted: number[] = [];
  for (let tick = 0; tick < (4 * 3_600) / tickSeconds; tick++) {
    const actors = counts.at(-1)!;
    idle.push(Math.max(0, 1 - actors / enough));
    const ratio = mean(idle.slice(-averagedTicks)) / threshold;
    const desired = Math.abs(ratio - 1) <= tolerance ? actors : Math.ceil(actors * ratio);
    wanted.push(Math.min(most, Math.max(1, desired)));
    const limits = (direction: keyof ScalingRules, sign: 1 | -1) =>
      rules[direction].policies.map(({ type, value, periodSeconds }) => {
        const before = counts.at(-Math.min(counts.length, periodSeconds / tickSeconds)) ?? actors;
        const change = type === 'Pods' ? value : (before * value) / 100;
        return sign > 0 ? Math.ceil(before + change) : Math.floor(before - change);
      });
    const stabilized = Math.max(...wanted.slice(-stabilizedTicks)); // what a decrease goes by
    const now = wanted.at(-1)!;
    if (now > actors) {
      counts.push(Math.max(actors, Math.min(now, Math.max(...limits('scaleUp', 1)))));
    } else if (stabilized < actors) {
      counts.push(Math.min(actors, Math.max(stabilized, Math.min(...limits('scaleDown', -1)))));
    } else {
      counts.push(actors);
    }
  }
  return counts;
}

describe('scaling by starvation', async () => {
  const render = await kustomize();
  const skip = typeof render === 'string' && render;
  const late = (counts: readonly number[]) => counts.slice(-3_600 / tickSeconds);

  it(
    'the number of actors stays near the one with which the learner waits a fifth of its time',
    { skip },
    async () => {
      assert(typeof render !== 'string');
      const { advanced } = scalingOf(await render('test/deploy/k8s/starvation'), 'actor');
      const { scaleUp, scaleDown } = advanced!.horizontalPodAutoscalerConfig.behavior;
      for (const enough of [10, 20, 40]) {
        for (const start of [1, most]) {
          const counts = late(
            actorsOver(enough, start, { scaleUp: scaleUp!, scaleDown: scaleDown! }),
          );
          const [low, high] = [Math.min(...counts), Math.max(...counts)];
          const name = `${enough} from ${start}: ${low} to ${high}`;
          assert(low >= 0.7 * enough && high <= enough, name); // a fifth: at 0.8
        }
      }
    },
  );

  it('with the usual rules of Kubernetes the number of actors swings', () => {
    for (const enough of [10, 20, 40]) {
      const counts = late(actorsOver(enough, 1, usual));
      assert(Math.max(...counts) >= 3 * Math.min(...counts), `${enough}`);
    }
  });
});
