import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { startBrowser } from '../support/browser.js';

/** The pictures of docs/dashboard.md: window width, color scheme and visible part of the page. */
const pictures = [
  { name: 'light', width: 1280, colorScheme: 'light', from: 'header', to: '#off-policy' },
  { name: 'dark', width: 1280, colorScheme: 'dark', from: '#the-flow', to: '#newest' },
  { name: 'narrow', width: 390, colorScheme: 'light', from: 'header', to: '#plot-solved' },
] as const;

/** The largest height of a picture; a page may be longer. */
const tallest = 1_900;

/** The margin above and below. */
const margin = 12;

/** Takes the pictures of docs/dashboard.md from a served dashboard: URL FOLDER. */
const [url, folder] = process.argv.slice(2);
if (url === undefined || folder === undefined) {
  process.stderr.write('expected the address of a dashboard, and a folder for the pictures\n');
  process.exit(2);
}
const browser = await startBrowser();
if (typeof browser === 'string') {
  process.stderr.write(`${browser}\n`);
  process.exit(2);
}
try {
  await mkdir(folder, { recursive: true });
  for (const { name, width, colorScheme, from, to } of pictures) {
    const viewport = { width, height: 900 };
    const page = await browser.newPage({ viewport, colorScheme, reducedMotion: 'reduce' });
    await page.goto(url);
    await page
      .getByText(/\d\/(s|min)/)
      .first()
      .waitFor(); // rates, which need two samples
    const path = join(folder, `dashboard-${name}.png`);
    await page.screenshot({ path, fullPage: true, clip: await between(page, from, to) });
    await page.close();
  }
} finally {
  await browser.close();
}

async function between(page: Page, from: string, to: string) {
  const [first, last] = [
    await page.locator(from).first().boundingBox(),
    await page.locator(to).first().boundingBox(),
  ];
  if (first === null || last === null) throw new Error(`the page has no ${from} or no ${to}`);
  const y = Math.max(0, first.y - margin);
  const height = Math.min(tallest, last.y + last.height + margin - y);
  return { x: 0, y, width: page.viewportSize()!.width, height };
}
