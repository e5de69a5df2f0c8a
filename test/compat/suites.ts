import { testCookbookLearning } from './cookbook-learning.js';
import { testCookbookSpeed } from './cookbook-speed.js';
import { testCookbook, testNewestCookbook, testTwoCommands } from './cookbook.js';
import { testCountdownExample } from './countdown-example.js';
import { testGguf } from './gguf.js';
import { testPrompts } from './prompts.js';
import { testGpuBundle } from './gpu-test.js';
import { testReasoningGym } from './reasoning-gym.js';
import { testSdk } from './sdk.js';
import { testSdkVersions } from './sdk-versions.js';
import { testServers } from './servers.js';
import { runPython, type Suite } from './suite.js';
import { tuftCalls } from './tuft/calls.js';
import { tuftMishaps } from './tuft/mishaps.js';
import { tuftNumbers } from './tuft/numbers.js';
import { tuftRestart } from './tuft/restart.js';
import { tuftTraining } from './tuft/training.js';
import { timedVersions } from './engines/exactness.js';
import { testSglangFaults, testVllmFaults } from './engines/faults.js';
import { testLargeAdapters } from './engines/large-adapter.js';
import { testSglang, testVllm } from './engines/training.js';

/** Whether a Python with the engine is named, so that none need be installed. */
const hasVllm = (process.env['OFFBEAT_VLLM_PYTHON'] ?? '') !== '';
const hasSglang = (process.env['OFFBEAT_SGLANG_PYTHON'] ?? '') !== '';

/**
 * What `npm run test:compat` runs, in this order. A new suite is one entry: its name, what it
 * proves, and what runs it. Programs in Python report their checks as lines of JSON (runPython).
 */
export const suites: readonly Suite[] = [
  {
    name: 'servers',
    proves: 'our learner trains at SkyRL, Miles and open-rl, played by contracts of their sources',
    run: testServers,
    needsPython: false,
  },
  {
    name: 'environment',
    proves: 'the pinned versions are the ones that the other suites import',
    run: (context) => runPython(context, 'environment.py'),
  },
  {
    name: 'sdk',
    proves: 'the Python SDK works against the local backend, with the numbers of transformers',
    run: (context) => testSdk(context),
  },
  {
    name: 'tuft-example',
    proves: "TuFT's Countdown example trains against the local backend, unmodified",
    run: testCountdownExample,
  },
  {
    name: 'cookbook',
    proves: "the cookbook's asynchronous RL loop trains and resumes against the local backend",
    run: (context) => testCookbook(context),
  },
  {
    name: 'cookbook-laptop',
    proves: 'the two commands of docs/backends.md train the embedded model with the cookbook',
    run: testTwoCommands,
    limitMinutes: 20,
  },
  {
    name: 'cookbook-speed',
    proves: "the cookbook's loop takes the same steps on the local backend and on TuFT; how fast",
    run: testCookbookSpeed,
    limitMinutes: 30,
  },
  {
    name: 'cookbook-learning',
    proves:
      "Offbeat and the cookbook's loop train for the same time at the same slow server; what they learn",
    run: testCookbookLearning,
    limitMinutes: 240,
  },
  {
    name: 'tuft-calls',
    proves: 'the real TuFT server answers every call that this project makes of it',
    run: tuftCalls,
  },
  {
    name: 'tuft-mishaps',
    proves: 'faults of the network and of TuFT lose no step and repeat none',
    run: tuftMishaps,
  },
  {
    name: 'tuft-restart',
    proves: 'a restart of TuFT is detected, and the run is restored as it was saved',
    run: tuftRestart,
  },
  {
    name: 'tuft-numbers',
    proves: 'TuFT and the local backend compute the same logprobs, losses and steps',
    run: tuftNumbers,
  },
  {
    name: 'tuft-training',
    proves: 'npm start trains with TuFT as its backend, across its death, and the policy improves',
    run: tuftTraining,
    limitMinutes: 20,
  },
  {
    name: 'vllm',
    proves:
      'npm start samples with a real vLLM, across its death, with the logprobs of the trainer',
    run: testVllm,
    limitMinutes: 40 + timedVersions / 5,
  },
  {
    name: 'sglang',
    proves:
      'npm start samples with a real SGLang, across its death, with the logprobs of the trainer',
    run: testSglang,
    needsPython: !hasSglang,
    limitMinutes: 60 + timedVersions / 2,
  },
  {
    name: 'vllm-faults',
    proves:
      'an actor refuses a real vLLM that samples with other weights or another temperature than it should',
    run: testVllmFaults,
    needsPython: !hasVllm,
    limitMinutes: 40,
  },
  {
    name: 'sglang-faults',
    proves:
      'an actor refuses a real SGLang that samples with other weights or another temperature than it should',
    run: testSglangFaults,
    needsPython: !hasSglang,
    limitMinutes: 60,
  },
  {
    name: 'vllm-adapter',
    proves: 'a version with an adapter of 130 MB is loaded by vLLM 1.5 s after its manifest',
    run: testLargeAdapters,
    needsPython: !hasVllm,
    limitMinutes: 40,
  },
  {
    name: 'gpu-test',
    proves:
      'the bundle of npm run test:gpu trains where there is only Python with torch and transformers',
    run: testGpuBundle,
    limitMinutes: 30,
  },
  {
    name: 'transformers',
    proves: 'the golden files of npm test agree with transformers and peft',
    run: (context) => runPython(context, 'golden/make.py', ['--check']),
  },
  {
    name: 'gguf',
    proves: 'offbeat model get makes of a GGUF file what transformers reads from it',
    run: testGguf,
    limitMinutes: 15,
  },
  {
    name: 'prompts',
    proves:
      'the prompts, conversations and ends of answers of SmolLM2 are those of its own template and tokenizer',
    run: testPrompts,
    limitMinutes: 10,
  },
  {
    name: 'reasoning-gym',
    proves: "the scorer agrees with reasoning-gym's Countdown on its problems and on other answers",
    run: testReasoningGym,
    limitMinutes: 30,
  },
  {
    name: 'tensorboard',
    proves: "TensorBoard's own reader reads our event file correctly",
    run: (context) => runPython(context, 'event_file.py'),
  },
  {
    name: 'sdk-versions',
    proves:
      'SDKs 0.24 to 0.38 work like that of `sdk`, and the newest one sends nothing that is unknown here',
    run: testSdkVersions,
    limitMinutes: 20,
  },
  {
    name: 'cookbook-newest',
    proves: "the newest cookbook's loop trains and resumes too, with the newest SDK",
    run: testNewestCookbook,
  },
];
