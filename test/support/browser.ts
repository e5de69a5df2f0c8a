import { type Browser, chromium } from 'playwright-core';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import { errorText } from '../../shared/base/errors.js';
import { unpackBrowser } from './own-browser.js';

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/**
 * A headless browser: that of CHROMIUM_PATH, one of this machine, or a downloaded one.
 *
 * @returns the reason, if there is none or it does not start: a test skips with it.
 */
export async function startBrowser(): Promise<Browser | string> {
  const folders = searchFolders(process.env['PATH']);
  const found = await Promise.all(names.map((name) => findExecutables(name, folders)));
  const executablePath = process.env['CHROMIUM_PATH'] ?? found.flat()[0];
  try {
    if (executablePath !== undefined) return await launch(executablePath);
    const own = await unpackBrowser();
    const browser = await launch(own.executablePath, own.env);
    browser.on('disconnected', () => void own[Symbol.asyncDispose]());
    return browser;
  } catch (caught) {
    const which = executablePath ?? 'no Chromium on PATH, none in CHROMIUM_PATH, and our own';
    return `${which} does not start (${errorText(caught).split('\n')[0]})`;
  }
}

function launch(executablePath: string, env: Readonly<Record<string, string>> = {}) {
  // Without its sandbox, which containers often forbid: it only shows our own page.
  const args = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'];
  const variables = { ...(process.env as Record<string, string>), ...env };
  return chromium.launch({ executablePath, args, env: variables, timeout: 120_000 });
}
