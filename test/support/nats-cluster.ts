import { freePort } from '../../cli/processes/free-port.js';
import { NatsServer } from './nats-server.js';
import { until } from './waiting.js';

/** A cluster of three servers on loopback: a stream may be kept on all of them. */
export class NatsCluster implements AsyncDisposable {
  private constructor(
    readonly servers: readonly [NatsServer, NatsServer, NatsServer],
    readonly monitoringPorts: readonly number[],
  ) {}

  /**
   * Resolves when streams can be created.
   *
   * @param configuration further lines of each server's configuration.
   */
  static async start(configuration: string): Promise<NatsCluster> {
    const ports = [await freePort(), await freePort(), await freePort()];
    const monitoringPorts = [await freePort(), await freePort(), await freePort()];
    const routes = JSON.stringify(
      ports.map((port) => `nats-route://routes:secret@127.0.0.1:${port}`),
    );
    const start = (port: number, i: number) =>
      NatsServer.start({
        configuration: `server_name: n${i}
cluster {
  name: test, listen: "127.0.0.1:${port}", routes: ${routes}
  authorization { user: routes, password: secret }
}
http: "127.0.0.1:${monitoringPorts[i]}"
${configuration}`,
      });
    const started: NatsServer[] = [];
    try {
      for (const [i, port] of ports.entries()) started.push(await start(port, i));
      const [one, two, three] = started;
      await untilHealthy(monitoringPorts[0]!); // has a leader; an earlier request would stay unanswered, and its client would wait
      return new NatsCluster([one!, two!, three!], monitoringPorts);
    } catch (caught) {
      for (const server of started) await server[Symbol.asyncDispose]();
      throw caught;
    }
  }

  /** Starts a stopped server again; resolves when it has caught up with the others. */
  async resume(server: NatsServer): Promise<void> {
    await server.resume();
    await untilHealthy(this.monitoringPorts[this.servers.indexOf(server)]!);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()));
  }
}

/** Resolves once the server says that its copies of all streams and consumers are current. */
function untilHealthy(monitoringPort: number): Promise<void> {
  return until(() => fetch(`http://127.0.0.1:${monitoringPort}/healthz`).then(({ ok }) => ok));
}
