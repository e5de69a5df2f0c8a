import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { promptText } from '../../../shared/tasks/prompt.js';

describe('the text of a chat prompt', () => {
  const textOf = (template: string, opening: string) =>
    promptText({ chat: [], opening }, { chatText: () => template });

  it('the opening of the answer follows what the template writes', () => {
    assert.equal(textOf('<user>Hi\n<assistant>\n', 'So'), '<user>Hi\n<assistant>\nSo');
    assert.equal(textOf('<assistant>\n', ''), '<assistant>\n');
  });

  it('a tag that the template has opened is not opened twice', () => {
    const opening = 'Let me think.\n<think>';
    assert.equal(textOf('<assistant><think>\n', opening), `<assistant>${opening}`);
    assert.equal(textOf('<assistant><reason>\n', opening), `<assistant><reason>\n${opening}`);
  });
});
