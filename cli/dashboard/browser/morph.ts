/**
 * Replaces the content of `element` by `markup`, and keeps every element that can stay: focus, scroll
 * positions, open details and selected text survive an update.
 *
 * The markup is from the server, which escapes the texts of a model. It is parsed as a separate
 * document, where no script runs, and the page's content policy allows only our script.
 */
export function morph(element: Element, markup: string): void {
  const wanted = new DOMParser().parseFromString(markup, 'text/html').body;
  morphChildren(element, wanted);
}

function morphChildren(element: Element, wanted: Element): void {
  const kept = [...element.childNodes];
  let place = 0;
  for (const next of [...wanted.childNodes]) {
    const old = kept[place];
    if (old !== undefined && isAlike(old, next)) {
      place += 1;
      if (old instanceof Element && next instanceof Element) morphElement(old, next);
      else if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
      continue;
    }
    const added = document.importNode(next, true);
    // A new key is inserted before the element that is already here.
    if (old !== undefined && keyOf(old) === undefined) {
      old.replaceWith(added);
      place += 1;
    } else element.insertBefore(added, old ?? null);
  }
  for (const rest of kept.slice(place)) rest.remove();
}

function morphElement(old: Element, next: Element): void {
  for (const { name } of [...old.attributes]) {
    // Details that the reader has opened stay open.
    const isReaders = name === 'open' && old instanceof HTMLDetailsElement;
    if (!next.hasAttribute(name) && !isReaders) old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, next);
}

/** Whether one element can be updated to the other. */
function isAlike(old: Node, next: Node): boolean {
  return old.nodeName === next.nodeName && keyOf(old) === keyOf(next);
}

function keyOf(node: Node): string | undefined {
  return node instanceof HTMLElement ? node.dataset['key'] : undefined;
}
