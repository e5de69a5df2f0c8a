import { randomUUID } from 'node:crypto';
import { access, constants, rm, statfs, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { errorText } from '../../shared/base/errors.js';
import { canListen, freePort } from '../processes/free-port.js';
import { nearestExisting } from '../run-folder.js';
import { finding, ok, type Finding } from './finding.js';

/** A run of ten minutes keeps some hundred megabytes of streams and checkpoints. */
const neededDiskBytes = 2 * 2 ** 30;

/** Whether runs can be kept in a folder. Leaves no file; a missing folder is not created. */
export async function runsFolderFindings(runsDir: string): Promise<Finding[]> {
  const check = 'runs-dir';
  const path = resolve(runsDir);
  const existing = await nearestExisting(path);
  try {
    if (existing === path) {
      const probe = join(path, `.doctor-${randomUUID()}`);
      await writeFile(probe, '', { flag: 'wx' });
      await rm(probe);
    } else await access(existing, constants.W_OK | constants.X_OK);
  } catch (caught) {
    const found = `${path} cannot be written (${errorText(caught)})`;
    return [finding(check, 'error', found, 'runsFolderReadOnly')];
  }
  const { bavail, bsize } = await statfs(existing);
  const free = `${((bavail * bsize) / 2 ** 30).toFixed(1)} GiB are free`;
  const found =
    existing === path ? `${path} can be written; ${free}` : `${path} can be made; ${free}`;
  return [
    bavail * bsize < neededDiskBytes
      ? finding(check, 'warning', found, 'littleDisk')
      : ok(check, found),
  ];
}

/** Ports that our services use unless another is given. */
const defaultPorts = [
  { port: 10_610, service: 'offbeat local-backend' },
  { port: 10_620, service: 'offbeat score-server' },
];

/** Whether services can listen on loopback, at all and on their default ports. */
export async function portFindings(ports = defaultPorts): Promise<Finding[]> {
  const check = 'ports';
  try {
    await freePort();
  } catch (caught) {
    return [finding(check, 'error', errorText(caught), 'noPort')];
  }
  const taken: string[] = [];
  for (const { port, service } of ports) {
    if (!(await canListen(port))) taken.push(`${port} (of ${service}) is taken`);
  }
  return [
    taken.length > 0
      ? finding(check, 'warning', taken.join(', '), 'portTaken')
      : ok(check, 'services can listen on 127.0.0.1'),
  ];
}
