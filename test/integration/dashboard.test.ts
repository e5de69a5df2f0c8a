import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { reportPage } from '../../cli/dashboard/page/document.js';
import type { RunView } from '../../cli/dashboard/run/run-view.js';
import { serveDashboard, type Dashboard } from '../../cli/dashboard/server.js';
import { startBrowser } from '../support/browser.js';
import { runView, sampled, stepPoint } from '../support/run-view.js';

const background = 'getComputedStyle(document.body).backgroundColor';
const hostile = '<img src=x onerror="document.title=1">';

describe('the dashboard in a real browser', { timeout: 240_000 }, async () => {
  const found = await startBrowser();
  const skip = typeof found === 'string' && found;
  const browser = found as Browser;
  let state: RunView;
  let dashboard: Dashboard;

  before(async () => {
    state = runView({ samples: [sampled(hostile, { prompt: hostile })] });
    const now = () => Promise.resolve(state);
    dashboard = await serveDashboard({ port: 0, everyMs: 50, now });
  });
  after(async () => {
    await dashboard[Symbol.asyncDispose]();
    if (!skip) await browser.close();
  });

  /** An open page, all its requests and all its errors. */
  async function open(url: string, options: BrowserContextOptions = {}) {
    const page = await browser.newPage(options);
    page.setDefaultTimeout(60_000);
    const asked: string[] = [];
    const complaints: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    page.on('pageerror', ({ message }) => complaints.push(message));
    page.on('console', (line) => {
      if (line.type() === 'error') complaints.push(line.text());
    });
    await page.goto(url);
    return { page, asked, complaints, [Symbol.asyncDispose]: () => page.close() };
  }

  const valueOf = (page: Page) => page.locator('#headline dd').first();
  /** Waits until the page shows a step: by locators, since the page allows no eval. */
  const says = (page: Page, step: number) =>
    page
      .locator('#plot-reward tbody tr:last-child th', { hasText: new RegExp(`^${step}$`) })
      .waitFor({ state: 'attached' });
  const train = (step: number) => {
    const { history } = state;
    const steps = [...history.steps, stepPoint(step)];
    state = { ...state, history: { ...history, steps } };
  };

  it(
    'the dashboard follows the run without a reload and requests only its own server',
    { skip },
    async () => {
      await using opened = await open(dashboard.url);
      const { page, asked, complaints } = opened;
      await page.getByText('live', { exact: true }).waitFor();
      await says(page, 5);
      train(6);
      await says(page, 6);
      assert.equal(asked.filter((url) => url === dashboard.url).length, 1);
      assert.deepEqual(
        asked.filter((url) => !url.startsWith(dashboard.url)),
        [],
      );
      assert.deepEqual(complaints, []);
    },
  );

  it(
    'the dashboard does not show a run as live if it is over or has no learner',
    { skip },
    async () => {
      const before = state;
      state = { ...state, phase: 'over', flow: undefined };
      await using opened = await open(dashboard.url);
      const { page } = opened;
      await page.getByText('the run is over', { exact: true }).waitFor();
      state = { ...before, phase: 'stopped' }; // its learner was killed
      await page.getByText('waiting for a learner', { exact: true }).waitFor();
      state = before; // it was resumed
      await page.getByText('live', { exact: true }).waitFor();
    },
  );

  it('the dashboard shows every column of every table on a phone', { skip }, async () => {
    await using opened = await open(dashboard.url, { viewport: { width: 360, height: 800 } });
    const cut = `[...document.querySelectorAll('main > section table')]
      .filter((table) => !table.closest('details'))
      .filter((table) => table.parentElement.scrollWidth > table.parentElement.clientWidth)
      .map((table) => table.caption.textContent)`;
    assert.deepEqual(await opened.page.evaluate(cut), []);
  });

  it('the dashboard shows the text of a model and executes none of it', { skip }, async () => {
    await using opened = await open(dashboard.url);
    const { page } = opened;
    await page.getByText('live', { exact: true }).waitFor();
    assert.equal(await page.locator('.prompt').first().textContent(), hostile);
    assert.equal(await page.locator('.answer').first().textContent(), hostile);
    assert.equal(await page.locator('img').count(), 0);
    assert.match(await page.title(), /^test · Offbeat$/);
  });

  it('the dashboard keeps opened parts and the focus while figures change', { skip }, async () => {
    await using opened = await open(dashboard.url);
    const { page } = opened;
    const summary = page.locator('#plot-reward summary');
    await summary.focus();
    await page.keyboard.press('Enter');
    const step = state.history.steps.length + 1;
    train(step);
    await page
      .locator('#plot-reward tbody tr')
      .nth(step - 1)
      .waitFor();
    assert.equal(await page.locator('#plot-reward details[open]').count(), 1);
    assert.equal(await page.locator('#plot-reward summary:focus').count(), 1);
  });

  it('the dashboard can be frozen by the keyboard and then catches up', { skip }, async () => {
    await using opened = await open(dashboard.url);
    const { page, complaints } = opened;
    await page.keyboard.press('Tab');
    assert.equal(await page.locator('.skip:focus').count(), 1);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Space');
    const hold = page.getByRole('button', { name: 'Pause', pressed: true });
    await hold.waitFor();
    const before = await valueOf(page).textContent();
    const step = state.history.steps.length + 1;
    train(step);
    await page.getByText('newer figures are waiting').waitFor();
    assert.equal(await valueOf(page).textContent(), before);
    await page.keyboard.press('Space');
    await says(page, step);
    assert.deepEqual(complaints, []);
  });

  it(
    'the dashboard has landmarks, one main heading and a name for each focusable element',
    { skip },
    async () => {
      await using opened = await open(dashboard.url);
      const { page } = opened;
      assert.equal(await page.getByRole('main').count(), 1);
      assert.equal(await page.getByRole('banner').count(), 1);
      assert.equal(await page.getByRole('heading', { level: 1 }).count(), 1);
      assert.equal(await page.getByRole('region', { name: 'Is it learning?' }).count(), 1);
      const nameless = `[...document.querySelectorAll('[tabindex="0"], button, a, summary')]
      .filter((each) => !(each.getAttribute('aria-label') ?? each.textContent)).length`;
      assert.equal(await page.evaluate(nameless), 0);
    },
  );

  it(
    'the dashboard follows the color scheme of the reader and fits a phone',
    { skip },
    async () => {
      const colors: unknown[] = [];
      for (const colorScheme of ['light', 'dark'] as const) {
        const viewport = { width: 390, height: 800 };
        await using opened = await open(dashboard.url, { colorScheme, viewport });
        const { page } = opened;
        colors.push(await page.evaluate(background));
        assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390);
      }
      assert.deepEqual(colors, ['rgb(246, 247, 249)', 'rgb(13, 17, 23)']);
    },
  );

  it('a report opens from the disk with its style and makes no request', { skip }, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-report-'));
    try {
      const path = join(folder, 'report.html');
      await writeFile(path, reportPage(state));
      const url = pathToFileURL(path).href;
      await using opened = await open(url, { colorScheme: 'dark' });
      const { page, asked, complaints } = opened;
      assert.equal(await page.evaluate(background), 'rgb(13, 17, 23)');
      assert.deepEqual([asked, complaints], [[url], []]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
