import { morph } from './morph.js';

/** Updates the page by the server's events, unless the reader has paused it. */
const connection = document.querySelector('#connection')!;
const hold = document.querySelector<HTMLButtonElement>('#hold')!;
/** Updates that arrived while the page was paused, by the part of the page. */
const waiting = new Map<string, string>();
let isHeld = false;
let state = 'connecting'; // of the connection
let isOpen = false;

hold.addEventListener('click', () => {
  isHeld = !isHeld;
  hold.setAttribute('aria-pressed', String(isHeld));
  if (isHeld) return;
  for (const [id, markup] of waiting) show(id, markup);
  if (waiting.size > 0) say(state);
  waiting.clear();
});

const events = new EventSource('/events');
events.addEventListener('open', () => {
  isOpen = true;
  say((state = stateOfRun()));
});
events.addEventListener('error', () => {
  isOpen = false;
  say((state = 'no connection, trying again'));
});
events.addEventListener('part', ({ data }: MessageEvent<string>) => {
  const { id, markup } = JSON.parse(data) as { id: string; markup: string };
  if (!isHeld) {
    show(id, markup);
    return;
  }
  waiting.set(id, markup);
  say('newer figures are waiting');
});
events.addEventListener('over', () => {
  events.close();
  isOpen = false;
  say((state = 'ended: this page no longer changes'));
});

function show(id: string, markup: string): void {
  const part = document.getElementById(id);
  if (part !== null) morph(part, markup);
  else reloadOnce(id);
  if (id === 'title' && isOpen) say((state = stateOfRun()));
}

/** A page that was opened before the learner had written its configuration lacks the parts of a run on examples. */
function reloadOnce(missing: string): void {
  const key = `${document.title}: reloaded for ${missing}`;
  if (sessionStorage.getItem(key) !== null) return;
  sessionStorage.setItem(key, 'yes');
  location.reload();
}

/** Whether the page still changes, by the phase in its title. */
function stateOfRun(): string {
  if (document.querySelector('.phase.over') !== null) return 'the run is over';
  if (document.querySelector('.phase.stopped') !== null) return 'waiting for a learner';
  return document.querySelector('.phase.silent') === null ? 'live' : 'waiting for its NATS';
}

function say(text: string): void {
  if (connection.textContent !== text) connection.textContent = text;
}
