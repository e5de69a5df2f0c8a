import { freePort } from '../../cli/processes/free-port.js';
import { until } from './broker.js';
import { NatsServer } from './nats-server.js';

/** A cluster of three servers on loopback: a stream may be kept on all of them. */
export class NatsCluster implements AsyncDisposable {
  private constructor(readonly servers: readonly [NatsServer, NatsServer, NatsServer]) {}

  /**
   * Resolves when streams can be created.
   *
   * @param configuration further lines of each server's configuration.
   */
  static async start(configuration: string): Promise<NatsCluster> {
    const ports = [await freePort(), await freePort(), await freePort()];
    const monitoringPort = await freePort();
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
${i === 0 ? `http: "127.0.0.1:${monitoringPort}"` : ''}
${configuration}`,
      });
    const started: NatsServer[] = [];
    try {
      for (const [i, port] of ports.entries()) started.push(await start(port, i));
      const [one, two, three] = started;
      const hasLeader = () =>
        fetch(`http://127.0.0.1:${monitoringPort}/healthz`).then(({ ok }) => ok);
      await until(hasLeader); // an earlier request would stay unanswered, and its client would wait
      return new NatsCluster([one!, two!, three!]);
    } catch (caught) {
      for (const server of started) await server[Symbol.asyncDispose]();
      throw caught;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()));
  }
}
