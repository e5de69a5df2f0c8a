import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { backendFindings } from '../../../cli/doctor/backend.js';
import { remedies, type Trouble } from '../../../cli/doctor/finding.js';
import { ScriptedServer } from '../../shared/tinker/scripted-server.js';
import { silent } from '../../support/log.js';

describe("the doctor's findings about what TuFT says of a model", { timeout: 60_000 }, () => {
  const cases: [capabilities: string[], level: string, Trouble | undefined][] = [
    [['training', 'sampling'], 'ok', undefined],
    [['training'], 'warning', 'cannotSample'],
    [['sampling'], 'error', 'cannotTrain'],
  ];
  for (const [capabilities, level, trouble] of cases) {
    it(`a model that is there for ${capabilities.join(' and ')} is a finding of level ${level}`, async () => {
      await using server = await ScriptedServer.start();
      server.script('GET get_server_capabilities', {
        json: { supported_models: [{ model_name: 'base', max_context_length: 64, capabilities }] },
      });
      const findings = await backendFindings({
        ...{ backendUrl: server.url, apiKey: 'tml-key', modelName: 'base', modelDir: '/none' },
        ...{ loraRank: 8, trial: false, log: silent, signal: new AbortController().signal },
      });
      const model = findings.filter(({ check }) => check === 'backend-model');
      assert.deepEqual(
        model.map((each) => [each.level, each.remedy]),
        [[level, trouble && remedies[trouble]]],
      );
      assert.match(model[0]!.found, new RegExp(`for ${capabilities.join(' and ')}$`));
    });
  }
});
