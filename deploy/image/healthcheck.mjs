/** Ends with 0 if the service of this container answers: on the health port that its environment names. */
const name = Object.keys(process.env).find((key) => key.endsWith('_HEALTH_PORT'));
const port = name === undefined ? 9090 : process.env[name];
const response = await fetch(`http://127.0.0.1:${port}/healthz`, {
  signal: AbortSignal.timeout(4_000),
});
process.exit(response.ok ? 0 : 1);
