import { accountsText } from './accounts.js';
import type { NatsUser, ServerCertificate } from './keys.js';

/** Where one run's server listens and keeps its streams. */
export interface ServerConfig {
  readonly run: string;
  readonly storeFolder: string;
  /** The server writes the ports that it took into a file in here. */
  readonly portsFolder: string;
  readonly port?: number | undefined; // of the system's choice, if it is not told
  /** Nobody else is let in. */
  readonly users: readonly NatsUser[];
  readonly certificate?: ServerCertificate | undefined; // no TLS without one
}

/**
 * The text of nats-server's configuration: loopback only, where it is not told otherwise with ports
 * of the system's choice, so that nothing can take them in between, and JetStream in the run's own folder.
 */
export function serverConfigText(config: ServerConfig): string {
  const { run, storeFolder, portsFolder, users, certificate, port = -1 } = config;
  return `# Written by offbeat up; the server ends with the run.
host: "127.0.0.1"
port: ${port}
http: "127.0.0.1:-1"
ports_file_dir: ${JSON.stringify(portsFolder)}
jetstream {
  store_dir: ${JSON.stringify(storeFolder)}
}
${accountsBlock(accountsText(run, users))}${certificate === undefined ? '' : tlsText(certificate)}`;
}

/** The accounts of one run. A server that several runs share has one block with those of each. */
export function accountsBlock(accounts: string): string {
  return `accounts {\n${accounts}}\n`;
}

/** TLS 1.2 and newer, for every client. */
export function tlsText({ certificateFile, keyFile }: ServerCertificate): string {
  return `tls {
  cert_file: ${JSON.stringify(certificateFile)}
  key_file: ${JSON.stringify(keyFile)}
}
`;
}
