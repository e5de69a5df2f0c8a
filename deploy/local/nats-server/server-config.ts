import type { NatsUser, ServerCertificate } from './keys.js';

/** Where one run's server listens and keeps its streams. */
export interface ServerConfig {
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
  const { storeFolder, portsFolder, users, certificate, port = -1 } = config;
  return `# Written by offbeat up; the server ends with the run.
host: "127.0.0.1"
port: ${port}
http: "127.0.0.1:-1"
ports_file_dir: ${JSON.stringify(portsFolder)}
jetstream {
  store_dir: ${JSON.stringify(storeFolder)}
}
${authorizationText(users)}${certificate === undefined ? '' : tlsText(certificate)}`;
}

/** The users and what each may do. It holds public keys alone, so it is no secret. */
export function authorizationText(users: readonly NatsUser[]): string {
  const list = (subjects: readonly string[]) =>
    `[\n${subjects.map((subject) => `        ${JSON.stringify(subject)}\n`).join('')}      ]`;
  const blocks = users.map(
    ({ name, publicKey, permissions: { publish, subscribe } }) => `    { # ${name}
      nkey: ${publicKey}
      permissions: {
      publish: { allow: ${list(publish)} }
      subscribe: { allow: ${list(subscribe)} }
      }
    }
`,
  );
  return `authorization {\n  users: [\n${blocks.join('')}  ]\n}\n`;
}

/** TLS 1.2 and newer, for every client. */
export function tlsText({ certificateFile, keyFile }: ServerCertificate): string {
  return `tls {
  cert_file: ${JSON.stringify(certificateFile)}
  key_file: ${JSON.stringify(keyFile)}
}
`;
}
