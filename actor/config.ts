import { hostname } from 'node:os';
import { z } from 'zod';
import { embeddedModelPath } from '../shared/model/model-directory.js';
import { RunName } from '../shared/wire/run-config.js';

/** Where an actor finds things and how it samples. What is sampled, the run's configuration says. */
export const ActorConfig = z
  .object({
    natsUrl: z.string().min(1).default('nats://127.0.0.1:4222'),
    run: RunName,
    name: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,128}$/, 'expected 1 to 128 letters, digits, - or _')
      .default(() => defaultName(hostname(), process.pid)), // part of a subject and of a key
    sampler: z.enum(['onnx', 'tinker']).default('onnx'), // here, or by the backend's sample calls
    modelDir: z.string().min(1).default(embeddedModelPath), // tinker needs only its tokenizer
    threads: z.coerce.number().int().positive().default(1), // of the onnx sampler
    inFlightUpdates: z.boolean().default(true), // a new version may be adopted inside a group
    backendUrl: z.url().optional(), // tinker only
    apiKey: z.string().min(1).optional(), // tinker only
    concurrency: z.coerce.number().int().positive().max(1024).default(8), // tinker: groups at once
    segmentTokens: z.coerce.number().int().nonnegative().default(0), // tinker: tokens a call; 0: all
    healthHost: z.string().min(1).default('127.0.0.1'),
    healthPort: z.coerce.number().int().min(0).max(65535).default(0), // 0: any; the log tells
  })
  .check(({ value, issues }) => {
    const complain = (key: keyof typeof value, message: string) =>
      issues.push({ code: 'custom', input: value, path: [key], message });
    if (value.sampler === 'tinker') {
      const why = '--sampler tinker samples by a backend';
      if (value.backendUrl === undefined) complain('backendUrl', `${why} and needs its address`);
      if (value.apiKey === undefined) complain('apiKey', `${why} and needs its key`);
    } else if (value.segmentTokens > 0) {
      complain('segmentTokens', 'only --sampler tinker samples in segments; remove one of the two');
    }
  });
export type ActorConfig = z.infer<typeof ActorConfig>;

/** A name that no other process of this fleet has, in the characters that a subject allows. */
export function defaultName(host: string, pid: number): string {
  return `${host.replace(/[^A-Za-z0-9_-]/g, '-').slice(0, 100)}-${pid}`;
}
