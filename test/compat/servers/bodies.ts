import {
  decodeForwardBackwardRequest,
  decodeForwardBackwardResult,
  encodeForwardBackwardResult,
} from '../../../shared/tinker/codec.js';
import { decodeSampleResult, encodeSampleResult } from '../../../shared/tinker/sample-codec.js';
import type { ForwardBackwardRequest } from '../../../shared/tinker/types.js';
import type { PassedAnswer, PassedRequest } from '../../support/recording-proxy.js';

export type Json = Record<string, unknown>;

/** A field as text; empty if it is absent or something else. */
export function textOf(json: Json | undefined, field: string): string {
  const value = json?.[field];
  return typeof value === 'string' || typeof value === 'number' ? `${value}` : '';
}

export function isPass(name: string): boolean {
  return name === 'forward_backward' || name === 'forward';
}

export function nameOf({ path }: PassedRequest): string {
  return path.replace(/\?.*$/, '').split('/').at(-1)!;
}

export function modelOf(sent: PassedRequest): string {
  return sent.isJson ? textOf(jsonOf(sent.body), 'model_id') : passOf(sent).modelId;
}

export function passOf({ body, isJson }: PassedRequest): ForwardBackwardRequest {
  if (isJson) throw new Error('the contracts so far take passes as protobuf');
  return decodeForwardBackwardRequest(body);
}

export function withoutMetrics(answer: PassedAnswer, json: Json | undefined): PassedAnswer {
  if (json !== undefined) return jsonAnswer(200, { ...json, metrics: {} });
  const { logprobs } = decodeForwardBackwardResult(answer.body);
  const body = encodeForwardBackwardResult('ArrayRecord', { logprobs, metrics: {} });
  return { ...answer, body: Buffer.from(body) };
}

export function withoutPrompt(answer: PassedAnswer, json: Json | undefined): PassedAnswer {
  if (json !== undefined) return jsonAnswer(200, { ...json, prompt_logprobs: null });
  const { sequences } = decodeSampleResult(answer.body);
  return { ...answer, body: Buffer.from(encodeSampleResult({ sequences })) };
}

export function withJson(given: PassedRequest, json: Json): PassedRequest {
  return { ...given, body: Buffer.from(JSON.stringify(json)) };
}

export function jsonOf(body: Buffer): Json {
  return JSON.parse(body.toString()) as Json;
}

export function jsonAnswer(status: number, json: unknown): PassedAnswer {
  return { status, type: 'application/json', body: Buffer.from(JSON.stringify(json)) };
}

export function only(json: Json, fields: readonly string[]): Json {
  return Object.fromEntries(Object.entries(json).filter(([key]) => fields.includes(key)));
}

export function filled(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/\{(\w+)\}/g, (whole, key: string) => values[key] ?? whole);
}
