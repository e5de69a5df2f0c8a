import { errorText, PermanentError, UserError } from '../../shared/base/errors.js';
import type { AdapterServer } from '../../shared/engine/adapter-server.js';
import { recognizedServer } from '../../shared/engine/dialects.js';
import { EngineDown, withoutCredentials } from '../../shared/engine/engine-http.js';
import { unknownIn } from '../../shared/engine/engine-metrics.js';
import { finding, ok, type Finding } from './finding.js';

export interface EngineQuestion {
  readonly urls: readonly string[];
  readonly apiKey: string | undefined;
  readonly signal: AbortSignal;
}

const healthMs = 5_000;
const metricsMs = 10_000;
/** Any tokens: every vocabulary has them. */
const prompt = Int32Array.of(1, 2, 3);
/** One at which logprobs of another distribution are noticed. */
const otherTemperature = 0.7;

/** Findings about servers of vLLM or SGLang: what they are, what a run would miss, and how busy they are. */
export async function engineFindings({ urls, apiKey, signal }: EngineQuestion): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const url of urls) findings.push(...(await serverFindings(url, apiKey, signal)));
  return findings;
}

async function serverFindings(
  url: string,
  apiKey: string | undefined,
  signal: AbortSignal,
): Promise<Finding[]> {
  const shown = withoutCredentials(url);
  let server: AdapterServer | undefined;
  try {
    server = await recognizedServer(url, apiKey, signal);
    await server?.checkHealth(healthMs, signal);
  } catch (caught) {
    signal.throwIfAborted();
    if (!(caught instanceof UserError || caught instanceof EngineDown)) throw caught;
    const trouble = caught instanceof UserError ? 'engineRefuses' : 'engineUnreachable';
    return [finding('engine', 'error', `${shown} cannot be used: ${errorText(caught)}`, trouble)];
  }
  if (server === undefined) {
    const found = `${shown} answers, but neither as vLLM nor as SGLang does`;
    return [finding('engine', 'error', found, 'noEngine')];
  }
  const findings = await offerFindings(server, shown, signal);
  for (const [check, examine] of [
    ['engine-slots', slotFinding],
    ['engine-metrics', busyFinding],
  ] as const) {
    findings.push(
      await examine(server, signal).catch((caught: unknown) => {
        if (!(caught instanceof EngineDown)) throw caught;
        return finding(check, 'error', errorText(caught), 'engineUnreachable');
      }),
    );
  }
  return findings;
}

/** Its release and context, and everything that a run would miss. */
async function offerFindings(
  server: AdapterServer,
  shown: string,
  signal: AbortSignal,
): Promise<Finding[]> {
  const probe = (temperature: number) => server.probe({ temperature, prompt }, signal);
  try {
    const { version, maxContext, endsCalls } = await probe(1);
    const context = maxContext === undefined ? '' : `, ${maxContext} tokens in a context`;
    const findings = [ok('engine', `${server.product} ${version ?? ''} at ${shown}${context}`)];
    if (!endsCalls) {
      const found =
        'it goes on with a call that is given up until it notices the closed connection';
      findings.push(finding('engine-abort', 'warning', found, 'engineAbort'));
    }
    try {
      await probe(otherTemperature);
    } catch (caught) {
      if (!(caught instanceof UserError)) throw caught;
      const found =
        'its logprobs are those of temperature 1, whatever the temperature of a request';
      findings.push(finding('engine-logprobs', 'warning', found, 'engineTemperature'));
    }
    return findings;
  } catch (caught) {
    if (![UserError, PermanentError, EngineDown].some((kind) => caught instanceof kind)) {
      throw caught;
    }
    return [finding('engine', 'error', errorText(caught), 'asItSays')];
  }
}

async function slotFinding(server: AdapterServer, signal: AbortSignal): Promise<Finding> {
  const check = 'engine-slots';
  const slots = await server.adapterSlots(signal);
  const loaded = (await server.adapters(signal)).length;
  if (slots === undefined) {
    const found = `it does not say for how many adapters it has room in a batch; ${loaded} are loaded`;
    return finding(check, 'skipped', found, 'engineSlotsUnknown');
  }
  const versions = slots - 2;
  const found = `room for ${slots} adapters in a batch, ${loaded} are loaded`;
  if (versions < 0) return finding(check, 'error', found, 'engineSlotsFew');
  if (loaded > slots) return finding(check, 'warning', found, 'engineSlotsFull');
  return ok(check, `${found}: one actor of a run with --max-steps-off-policy up to ${versions}`);
}

async function busyFinding(server: AdapterServer, signal: AbortSignal): Promise<Finding> {
  const check = 'engine-metrics';
  const metrics = await server.metrics(metricsMs, signal);
  const { kvTokens, kvUsage, running, waiting } = metrics ?? {};
  const said = [
    ...(kvTokens === undefined ? [] : [`a cache of ${kvTokens} tokens`]),
    ...(kvUsage === undefined ? [] : [`${Math.round(100 * kvUsage)} % of the cache in use`]),
    ...(running === undefined ? [] : [`${running} sequences running`]),
    ...(waiting === undefined ? [] : [`${waiting} queued`]),
  ].join(', ');
  const unknown = unknownIn(metrics);
  if (unknown.length === 0) return ok(check, said);
  const found = `${said === '' ? '' : `${said}; `}unknown: ${unknown.join(', ')}`;
  const trouble = server.kind === 'sglang' ? 'engineMetricsSglang' : 'engineMetrics';
  return finding(check, 'warning', found, trouble);
}
