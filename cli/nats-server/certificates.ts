import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';
import { authorityFile, certificateIn, type ServerCertificate } from './keys.js';

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;
const validDays = 397; // the most that clients take of a server

/**
 * Makes an authority for this one purpose and has it sign a certificate for `hosts`: names or
 * addresses. The authority's own key is never stored, so it cannot sign another certificate.
 *
 * @param folder receives `ca.pem`, which clients need, `server.pem` and, for its owner alone, the key.
 */
export async function writeCertificates(
  folder: string,
  hosts: readonly string[],
): Promise<ServerCertificate> {
  // The client compares the certificate of a server that it knows by address with `localhost`.
  const names = hosts.some((host) => isIP(host) !== 0) ? [...hosts, 'localhost'] : hosts;
  const notBefore = new Date(Date.now() - 3_600_000); // clocks differ
  const notAfter = new Date(notBefore.getTime() + validDays * 86_400_000);
  const [authorityKeys, serverKeys] = [await newKeys(), await newKeys()];
  const issuer = 'CN=Offbeat run authority';
  const authority = await X509CertificateGenerator.createSelfSigned({
    name: issuer,
    notBefore,
    notAfter,
    keys: authorityKeys,
    signingAlgorithm: algorithm,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign, true),
    ],
  });
  const server = await X509CertificateGenerator.create({
    subject: 'CN=Offbeat nats-server',
    issuer,
    notBefore,
    notAfter,
    publicKey: serverKeys.publicKey,
    signingKey: authorityKeys.privateKey,
    signingAlgorithm: algorithm,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension(
        [...new Set(names)].map((value) => ({ type: isIP(value) === 0 ? 'dns' : 'ip', value })),
      ),
    ],
  });
  const key = await webcrypto.subtle.exportKey('pkcs8', serverKeys.privateKey);

  await mkdir(folder, { recursive: true, mode: 0o700 });
  const { certificateFile, keyFile } = certificateIn(folder);
  await writeFile(join(folder, authorityFile), authority.toString('pem'));
  await writeFile(certificateFile, server.toString('pem'));
  await rm(keyFile, { force: true }); // its mode counts only where the file is new
  await writeFile(keyFile, PemConverter.encode(key, 'PRIVATE KEY'), { mode: 0o600 });
  return { certificateFile, keyFile };
}

async function newKeys(): Promise<webcrypto.CryptoKeyPair> {
  return await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
}
