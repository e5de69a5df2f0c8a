import { morph } from './morph.js';

/** Keeps the page as the server's events tell, unless the reader asks it to hold still. */
const connection = document.querySelector('#connection')!;
const hold = document.querySelector<HTMLButtonElement>('#hold')!;
/** What came while the page held still, by the part of the page. */
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
  say('newer figures wait');
});
events.addEventListener('over', () => {
  events.close();
  isOpen = false;
  say((state = 'ended: this page stays as it is'));
});

function show(id: string, markup: string): void {
  const part = document.getElementById(id);
  if (part !== null) morph(part, markup);
  if (id === 'title' && isOpen) say((state = stateOfRun()));
}

/** Whether what is shown still changes, by the phase that the page's title has. */
function stateOfRun(): string {
  if (document.querySelector('.phase.over') !== null) return 'the run is over';
  if (document.querySelector('.phase.stopped') !== null) return 'waiting for a learner';
  return document.querySelector('.phase.silent') === null ? 'live' : 'waiting for its NATS';
}

function say(text: string): void {
  if (connection.textContent !== text) connection.textContent = text;
}
