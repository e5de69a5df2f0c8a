import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { packageRoot } from '../../../shared/base/package-root.js';
import * as api from '../../../shared/tinker/api.js';
import * as samplingApi from '../../../shared/tinker/sampling-api.js';
import { file_tinker_tinker as ours } from '../../../shared/tinker/tinker_pb.js';

/** What the SDKs that we have compared can send; test/compat/sdk/protocol.py writes it from installed ones. */
const known = JSON.parse(
  readFileSync(join(packageRoot, 'test/compat/sdk/known-protocol.json'), 'utf8'),
) as {
  readonly versions: readonly string[];
  readonly requests: Readonly<Record<string, readonly string[]>>;
  readonly messages: Readonly<Record<string, Readonly<Record<string, string>>>>;
};

/** Our schema of each request; undefined: of a call that docs/backends.md lists as refused, or not read. */
const schemas: Readonly<Record<string, z.ZodType | undefined>> = {
  AdamParams: api.OptimStepRequest.out.shape.adam_params,
  ClientConfigRequest: api.ClientConfigRequest,
  CopyWeightsRequest: api.CopyWeightsRequest,
  CreateCustomLossRequest: api.CreateCustomLossRequest,
  CreateModelRequest: api.CreateModelRequest,
  CreateSamplingSessionRequest: samplingApi.CreateSamplingSessionRequest,
  CreateSessionRequest: api.CreateSessionRequest,
  ForwardBackwardRequest: api.ForwardBackwardJsonRequest,
  ForwardRequest: api.ForwardJsonRequest,
  FutureRetrieveRequest: samplingApi.RetrieveFutureRequest,
  FuturesRetrieveRequest: samplingApi.RetrieveFuturesRequest,
  GetBillingUsageRequest: undefined,
  GetCurrentCheckpointStorageUsageRequest: undefined,
  GetInfoRequest: api.GetInfoRequest,
  JoinSamplingSessionRequest: samplingApi.JoinSamplingSessionRequest,
  LoadWeightsRequest: api.LoadWeightsRequest,
  LoraConfig: api.LoraConfig,
  OptimStepRequest: api.OptimStepRequest,
  SampleRequest: samplingApi.SampleRequest,
  SamplingParams: samplingApi.SampleRequest.out.shape.sampling_params,
  SaveWeightsExternalRequest: api.SaveWeightsExternalRequest,
  SaveWeightsForSamplerRequest: api.SaveWeightsForSamplerRequest,
  SaveWeightsRequest: api.SaveWeightsRequest,
  SessionHeartbeatRequest: api.SessionHeartbeatRequest,
  SessionSearchRequest: undefined,
  TelemetrySendRequest: undefined,
  UnloadModelRequest: api.UnloadModelRequest,
};

function isField(schema: z.ZodType, name: string): boolean {
  const object = schema instanceof z.ZodPipe ? schema.out : schema;
  assert(object instanceof z.ZodObject);
  return Object.hasOwn(object.shape, name);
}

/** Whether a value of the field is refused with the field's name. */
function isRefused(schema: z.ZodType, name: string): boolean {
  const issues = schema.safeParse({ [name]: 'asked' }).error?.issues ?? [];
  return issues.some(({ message }) => message.startsWith(`${name} is "asked": not supported`));
}

describe('what Tinker SDKs can send', () => {
  it('every field of a request is in our schema, or refused by its name', () => {
    assert.deepEqual(Object.keys(schemas), Object.keys(known.requests));
    const ignored = Object.entries(known.requests).flatMap(([request, fields]) => {
      const schema = schemas[request];
      if (schema === undefined) return [];
      return fields
        .filter((field) => !isField(schema, field) && !isRefused(schema, field))
        .map((field) => `${request}.${field}`);
    });
    assert.deepEqual(ignored, []);
  });

  it('every field of our protobuf messages has the number and the name that the SDK gives it, or a number far from its own', () => {
    const added = ['SampleResponse.weights_path'];
    for (const message of ours.messages) {
      const given = known.messages[message.name];
      for (const { number, name } of message.fields) {
        if (number >= 100 && added.includes(`${message.name}.${name}`)) continue;
        assert.equal(name, given?.[number], `${message.name}.${name}`);
      }
    }
  });

  it('the protobuf fields that we leave out are these', () => {
    const byName = new Map<string, (typeof ours.messages)[number]>(
      ours.messages.map((message) => [message.name, message]),
    );
    const left = Object.entries(known.messages).flatMap(([name, fields]) => {
      const message = byName.get(name);
      if (message === undefined) return [name];
      const numbers = new Set(message.fields.map(({ number }) => number));
      return Object.entries(fields)
        .filter(([number]) => !numbers.has(Number(number)))
        .map(([, field]) => `${name}.${field}`);
    });
    assert.deepEqual(left, [
      'Datum.model_input_spans', // of stable_reinforce, as the next and the three messages on provenance
      'Datum.loss_fn_input_spans',
      'ImageChunk.override_dimensions',
      'ImageDimensions',
      'PromptAltTokens',
      'PromptProvenanceSpan',
      'ProvenanceSpan',
      'SampleResponse.target_prompt_logprobs',
      'SampleResponse.prompt_alt_tokens',
      'SampledProvenanceSpan',
      'SamplingParams', // no SDK sends it
      'StopStrings',
      'StopTokens',
      'TopkPromptLogprobs', // the older name of TopkLogprobs
    ]);
  });
});
