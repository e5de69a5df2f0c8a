import { type Browser, chromium } from 'playwright-core';
import { errorText } from '../../shared/errors.js';
import { findExecutables, searchFolders } from '../../deploy/local/nats-server/on-path.js';

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/**
 * A headless browser of this machine, or of CHROMIUM_PATH.
 *
 * @returns a sentence saying why not, where there is none or it does not start: a test skips with it.
 */
export async function startBrowser(): Promise<Browser | string> {
  const folders = searchFolders(process.env['PATH']);
  const found = await Promise.all(names.map((name) => findExecutables(name, folders)));
  const executablePath = process.env['CHROMIUM_PATH'] ?? found.flat()[0];
  if (executablePath === undefined) {
    return 'no Chromium on PATH and none in CHROMIUM_PATH; on Debian: apt-get install chromium';
  }
  try {
    // Without its sandbox, which containers often forbid: it shows nothing but our own page.
    const args = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'];
    return await chromium.launch({ executablePath, args, timeout: 120_000 });
  } catch (caught) {
    return `${executablePath} does not start (${errorText(caught).split('\n')[0]})`;
  }
}
