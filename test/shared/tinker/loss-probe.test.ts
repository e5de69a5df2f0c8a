import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UserError } from '../../../shared/base/errors.js';
import { lossAndGradient, type LossName } from '../../../shared/rl/losses.js';
import { BadRequest } from '../../../shared/tinker/errors.js';
import { probeLosses, type ForwardPass } from '../../../shared/tinker/loss-probe.js';

/** How a server computes a loss: as we do, with bounds of its own, without saying its value, or not at all. */
type Manner = 'ours' | 'own bounds' | 'silent' | 'refused';

interface Manners {
  readonly losses?: Partial<Record<LossName, Manner>>; // `ours` if not named
  readonly temperature?: 'honored' | 'ignored' | 'refused';
}

/** A server's forward pass, and the passes that it was asked for. */
function serverOf({ losses = {}, temperature = 'honored' }: Manners) {
  const asked: string[] = [];
  const pass: ForwardPass = (datum, loss, config) => {
    asked.push(loss);
    const manner = losses[loss] ?? 'ours';
    const { temperature: given = 1 } = config;
    if (manner === 'refused' || (temperature === 'refused' && given !== 1)) {
      const detail = manner === 'refused' ? `no loss ${loss}` : 'no key temperature';
      return Promise.reject(new BadRequest({ operation: 'forward', url: 'there', detail }));
    }
    const heat = temperature === 'honored' ? given : 1;
    const logprobs = Float32Array.from(datum.tokens, (_, i) => -(2.5 + i) / heat);
    const bounds = { clip_low_threshold: 0.9, clip_high_threshold: 1.1 };
    const settings = manner === 'own bounds' ? { ...config, ...bounds } : config;
    const { loss: value } = lossAndGradient(loss, logprobs, datum.inputs, settings);
    const metrics: Record<string, number> = manner === 'silent' ? {} : { 'loss:sum': value };
    return Promise.resolve({ logprobs: [logprobs], metrics });
  };
  const ask = (names: LossName[], config = {}) => probeLosses(pass, names, config, 'http://there');
  return { asked, ask };
}

describe('asking a server for losses', () => {
  for (const loss of ['cispo', 'ppo', 'dro', 'importance_sampling', 'cross_entropy'] as const) {
    it(`${loss} of the server is used if its value is ours`, async () => {
      assert.deepEqual(await serverOf({}).ask([loss]), {});
    });
  }

  it('the bounds of the run are those that are compared', async () => {
    const config = { clip_low_threshold: 0.9, clip_high_threshold: 1.1 };
    const server = serverOf({ losses: { ppo: 'own bounds', cispo: 'own bounds' } });
    assert.deepEqual(await server.ask(['ppo', 'cispo'], config), {});
  });

  for (const manner of ['own bounds', 'silent', 'refused'] as const) {
    it(`a loss is carried by importance_sampling if the server's is ${manner}`, async () => {
      const server = serverOf({ losses: { cispo: manner } });
      const carried = await server.ask(['cispo', 'cross_entropy']);
      assert.deepEqual(carried, { cispo: 'importance_sampling' });
      assert.equal(server.asked.length, new Set(server.asked).size, 'each loss is asked for once');
    });
  }

  it('a server without importance_sampling carries losses by cross_entropy', async () => {
    const server = serverOf({ losses: { importance_sampling: 'refused', ppo: 'own bounds' } });
    assert.deepEqual(await server.ask(['ppo', 'importance_sampling']), {
      ppo: 'cross_entropy',
      importance_sampling: 'cross_entropy',
    });
  });

  it('the two carriers need not say their value, since they have no settings', async () => {
    const server = serverOf({ losses: { importance_sampling: 'silent', cross_entropy: 'silent' } });
    assert.deepEqual(await server.ask(['importance_sampling', 'cross_entropy', 'cispo']), {});
  });

  it('a server with none of the carriers is used for a loss that it has', async () => {
    const losses = { importance_sampling: 'refused', cross_entropy: 'refused' } as const;
    assert.deepEqual(await serverOf({ losses }).ask(['cispo']), {});
    await assert.rejects(
      serverOf({ losses }).ask(['cross_entropy']),
      /neither the loss cross_entr/,
    );
  });

  it('another temperature than 1 is used where the server computes logprobs at it', async () => {
    assert.deepEqual(await serverOf({}).ask(['cispo'], { temperature: 0.7 }), {});
  });

  for (const manner of ['ignored', 'refused'] as const) {
    it(`another temperature than 1 ends the run, with a remedy, where it is ${manner}`, async () => {
      const server = serverOf({ temperature: manner });
      assert.deepEqual(await server.ask(['cispo'], { temperature: 1 }), {});
      await assert.rejects(server.ask(['cispo'], { temperature: 0.7 }), (error) => {
        assert(error instanceof UserError);
        assert.match(
          error.message,
          /at temperature 1 only .* samples at 0\.7\. Set --temperature 1/,
        );
        return true;
      });
    });
  }
});
