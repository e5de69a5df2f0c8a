import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { Graph } from '../../../shared/model/graph/graph.js';
import { floatOutput, integers, Session } from '../../../shared/model/graph/session.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';
import { rotaryWaves, rotarySpectrum } from '../../../shared/model/rotary.js';
import { goldenFolder, greatestDifference, readValues } from '../../support/golden.js';

/** What transformers computed: see test/compat/golden/rotary.py. */
const Cases = z.array(
  z.object({
    name: z.string(),
    config: z.record(z.string(), z.unknown()),
    amplitude: z.number(),
    positions: z.array(z.int()),
  }),
);

describe('the rotary embedding', async () => {
  const cases = Cases.parse(JSON.parse(readFileSync(`${goldenFolder}rotary/cases.json`, 'utf8')));
  const value = await readValues(`${goldenFolder}rotary/values.safetensors`);

  for (const { name, config: json, amplitude, positions } of cases) {
    const config = parseModelConfig(JSON.stringify(json), `${name}/config.json`);

    it(`the rotary embedding of ${name} has the frequencies and the amplitude of transformers`, () => {
      const spectrum = rotarySpectrum(config.rotary, config.headDim);
      const expected = value(`${name}.frequencies`);
      assert.equal(spectrum.frequencies.length, expected.length);
      spectrum.frequencies.forEach((frequency, i) => {
        const ulps = Math.abs(frequency / expected[i]! - 1) * 2 ** 23;
        assert.ok(ulps <= 2, `pair ${i}: ${frequency} is not ${expected[i]}`);
      });
      assert.ok(Math.abs(spectrum.amplitude - amplitude) < 1e-12);
    });

    it(`the rotary embedding of ${name} rotates tokens at all positions as transformers does`, async () => {
      const graph = new Graph();
      const dims = { batch: 1, time: 'time', rows: 'time' };
      const waves = rotaryWaves(graph, config, graph.input('p', 'int64', [1, 'time']), dims);
      graph.output('cos', waves.cos);
      graph.output('sin', waves.sin);
      const session = await Session.create(graph, 1);
      const outputs = await session.run({ p: integers(positions, [1, positions.length]) });
      for (const wave of ['cos', 'sin']) {
        assert.ok(greatestDifference(floatOutput(outputs, wave), value(`${name}.${wave}`)) < 1e-4);
      }
    });
  }
});
