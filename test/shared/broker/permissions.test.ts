import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runNames } from '../../../shared/broker/names.js';
import { identityName, permissionsOf, type Identity } from '../../../shared/broker/permissions.js';

const names = runNames('r');
const identities: Identity[] = [
  { role: 'learner' },
  { role: 'reward' },
  { role: 'observer' },
  { role: 'operator' },
  { role: 'actor', actor: 'pod.7' },
];

/** Those who may publish to a subject, by the server's rules for `*` and `>`. */
function whoMay(subject: string): string[] {
  const covers = (pattern: string) => {
    const [parts, tokens] = [pattern.split('.'), subject.split('.')];
    const open = parts.at(-1) === '>';
    if (open ? tokens.length < parts.length : tokens.length !== parts.length) return false;
    return parts.every((part, i) => part === '*' || part === '>' || part === tokens[i]);
  };
  return identities
    .filter((identity) => permissionsOf(identity, names).publish.some(covers))
    .map(identityName);
}

describe('the permissions of a run', () => {
  const rights: [string, string[]][] = [
    ['offbeat.r.rollouts.pod=2E7', ['operator', 'actor.pod=2E7']],
    ['offbeat.r.rollouts.pod', ['operator']],
    ['offbeat.r.uploads.pod=2E7', ['operator', 'actor.pod=2E7']],
    ['offbeat.r.uploads.pod', ['operator']],
    ['offbeat.r.dead.actor.pod=2E7', ['operator', 'actor.pod=2E7']],
    ['offbeat.r.dead.actor.pod', ['operator']],
    ['offbeat.r.dead.reward.pod', ['reward', 'operator']],
    ['$O.bodies_r.C.x', ['learner', 'reward', 'operator']],
    ['offbeat.r.scored.train', ['reward', 'operator']],
    ['$KV.policy_r.current', ['learner', 'operator']],
    ['$KV.ledger_r.checkpoint', ['learner', 'operator']],
    ['$JS.API.STREAM.MSG.GET.KV_ledger_r', ['learner', 'observer', 'operator']],
    ['$JS.API.CONSUMER.MSG.NEXT.TICKETS_r.actors-train', ['operator', 'actor.pod=2E7']],
    ['$JS.API.CONSUMER.CREATE.OBJ_bodies_r', []],
    ['$JS.API.STREAM.DELETE.TICKETS_r', ['operator']],
    ['$JS.API.STREAM.LIST', []],
    ['offbeat.s.rollouts.pod=2E7', []],
    ['$JS.API.STREAM.INFO.TICKETS_s', []],
  ];
  for (const [subject, allowed] of rights) {
    it(`the permissions of a run let ${allowed.join(', ') || 'no identity'} publish ${subject}`, () => {
      assert.deepEqual(whoMay(subject), allowed);
    });
  }

  it('the permissions of a run give each identity an inbox that no other identity can read', () => {
    const inboxes = identities.flatMap((identity) =>
      permissionsOf(identity, names).subscribe.filter((subject) => subject.startsWith('_INBOX')),
    );
    assert.equal(new Set(inboxes).size, identities.length);
    assert(inboxes.every((inbox) => /^_INBOX\.[a-z]+(\.pod=2E7)?\.>$/.test(inbox)));
  });
});
