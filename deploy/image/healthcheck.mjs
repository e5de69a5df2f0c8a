/** Ends with 0 if the service of this container answers on its health port: that of the environment, or the image's own. */
const usual = '9090';
const ports = Object.entries(process.env).filter(([name]) => name.endsWith('_HEALTH_PORT'));
// The image sets the port of every service; who starts the container may set another one for its service.
const [, port = usual] = ports.find(([, value]) => value !== usual) ?? [];
const response = await fetch(`http://127.0.0.1:${port}/healthz`, {
  signal: AbortSignal.timeout(4_000),
});
process.exit(response.ok ? 0 : 1);
