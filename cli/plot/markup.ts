type Attributes = Readonly<Record<string, string | number>>;

/** One element of SVG or HTML. The content is markup; attributes are escaped. */
export function element(name: string, attributes: Attributes, content = ''): string {
  const words = Object.entries(attributes).map(
    ([key, value]) => ` ${key}="${escaped(String(value))}"`,
  );
  return `<${name}${words.join('')}>${content}</${name}>`;
}

/** A text of SVG. */
export function text(content: string, attributes: Attributes): string {
  return element('text', attributes, escaped(content));
}

/** Plain text as markup. */
export function escaped(content: string): string {
  return content
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
