/** Where one run's server listens and keeps its streams. */
export interface ServerConfig {
  readonly storeFolder: string;
  /** The server writes the ports that it took into a file in here. */
  readonly portsFolder: string;
}

/**
 * The text of nats-server's configuration: loopback only, ports of the system's choice, so that
 * nothing can take them in between, and JetStream in the run's own folder.
 */
export function serverConfigText({ storeFolder, portsFolder }: ServerConfig): string {
  return `# Written by offbeat up; the server ends with the run.
host: "127.0.0.1"
port: -1
http: "127.0.0.1:-1"
ports_file_dir: ${JSON.stringify(portsFolder)}
jetstream {
  store_dir: ${JSON.stringify(storeFolder)}
}
`;
}
