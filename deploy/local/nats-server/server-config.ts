/** Where one run's server listens and keeps its streams. */
export interface ServerConfig {
  readonly storeFolder: string;
  /** The server writes the ports that it took into a file in here. */
  readonly portsFolder: string;
  readonly port?: number | undefined; // of the system's choice, if it is not told
}

/**
 * The text of nats-server's configuration: loopback only, where it is not told otherwise with ports
 * of the system's choice, so that nothing can take them in between, and JetStream in the run's own folder.
 */
export function serverConfigText({ storeFolder, portsFolder, port = -1 }: ServerConfig): string {
  return `# Written by offbeat up; the server ends with the run.
host: "127.0.0.1"
port: ${port}
http: "127.0.0.1:-1"
ports_file_dir: ${JSON.stringify(portsFolder)}
jetstream {
  store_dir: ${JSON.stringify(storeFolder)}
}
`;
}
