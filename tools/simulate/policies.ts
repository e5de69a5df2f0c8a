import { usualTicketsAhead } from '../../shared/rl/capacity.js';
import type { WindowPolicy } from '../../shared/rl/window.js';
import { expectedLongestFirst, tailFirst } from './ticket-order.js';
import type { Trace } from './trace.js';

/** The machines and the shape of a step, which no policy can change. */
export interface Setting {
  readonly groupsPerBatch: number;
  readonly groupSize: number;
  readonly numMinibatches: number;
  readonly slots: number; // answers sampled at once
  readonly stepSeconds: number; // training of one batch
  readonly publishSeconds: number; // from the end of a step until its version is sampled with
  readonly scoreSeconds: number; // from a group's last token until the learner has it
  readonly steps: number;
}

/** What learner and actors decide. */
export interface Policy {
  readonly window: WindowPolicy;
  readonly bound: number; // in versions: max_steps_off_policy
  /** Groups that the actors hold at once; as many as there are tickets unless given. */
  readonly groupsInFlight?: number | undefined;
  /** Tickets that may wait for an actor, as in the product; as many as the capacity law allows unless given. */
  readonly ticketsAhead?: number;
  /** Only tickets are issued that the learner has a use for, as in the product. */
  readonly isFrugal?: boolean;
  /** A running answer adopts a new version between two tokens. */
  readonly isAdopting?: boolean;
  /** Answers sampled beyond the group's size; the slowest ones are cancelled. */
  readonly spareAnswers?: number;
  /** [tickets] the problem of each ticket; unless given, and beyond its end, that of the ticket's order. */
  readonly problems?: readonly number[];
}

/** Choices of the user, beside the staleness bound. */
export interface PolicyOptions {
  readonly groupsInFlight?: number | undefined;
  readonly lookahead: number; // groups
  readonly predictionError: number;
  readonly spareAnswers: number;
}

/** What a policy may depend on. Only the oracle may use the trace without an error. */
export interface Circumstances {
  readonly bound: number;
  readonly options: PolicyOptions;
  readonly setting: Setting;
  readonly trace: Trace;
}

interface NamedPolicy {
  readonly about: string;
  readonly isExact: boolean; // loses no answer and masks no token
  readonly decide: (circumstances: Circumstances) => Omit<Policy, 'bound' | 'groupsInFlight'>;
}

/** The policies that can be compared, by name. */
export const policies = {
  oracle: {
    about: 'wait, with the groups of the longest answers first: it knows the future',
    isExact: true,
    decide: ({ bound, setting, trace }) => {
      const { stepSeconds, groupSize } = setting;
      const fits = oracleMargin * bound * stepSeconds;
      const longest = (problem: number) => Math.max(...trace.answersTo(problem, 0, groupSize));
      return { window: 'wait', problems: tailFirst(ticketsOf(setting), longest, fits) };
    },
  },
  wait: {
    about: 'the learner waits for a group that must be trained now',
    isExact: true,
    decide: () => ({ window: 'wait' }),
  },
  drop: {
    about: 'the learner never waits for a slow group; one that is too old is lost',
    isExact: false,
    decide: () => ({ window: 'drop' }),
  },
  tokens: {
    about: 'the bound holds for tokens: older ones are masked, and answers adopt new versions',
    isExact: false,
    decide: ({ setting: { groupsPerBatch } }) => {
      const ticketsAhead = usualTicketsAhead(groupsPerBatch);
      return { window: 'tokens', isAdopting: true, isFrugal: true, ticketsAhead };
    },
  },
  'longest-first': {
    about: 'wait, with the longest of the next --lookahead groups first, by a prediction',
    isExact: true,
    decide: ({ setting, trace, options: { lookahead, predictionError } }) => {
      const longest = (problem: number) =>
        Math.max(...trace.answersTo(problem, 0, setting.groupSize));
      const expected = (problem: number) =>
        longest(problem) * Math.exp(predictionError * trace.predictionError(problem));
      const problems = expectedLongestFirst(ticketsOf(setting), expected, lookahead);
      return { window: 'wait', problems };
    },
  },
  spare: {
    about: 'wait, with --spare-answers more in each group, of which the slowest are cancelled',
    isExact: false,
    decide: ({ options: { spareAnswers } }) => ({ window: 'wait', spareAnswers }),
  },
  'just-in-time': {
    about:
      'wait; a quarter of a batch of tickets waits for actors at most (see --groups-in-flight)',
    isExact: true,
    decide: ({ setting: { groupsPerBatch } }) => {
      return { window: 'wait', ticketsAhead: usualTicketsAhead(groupsPerBatch) };
    },
  },
  paced: {
    about: 'just-in-time, and only tickets that the learner has a use for: the rule of a run',
    isExact: true,
    decide: ({ setting: { groupsPerBatch } }) => {
      return { window: 'wait', ticketsAhead: usualTicketsAhead(groupsPerBatch), isFrugal: true };
    },
  },
} as const satisfies Record<string, NamedPolicy>;

export type PolicyName = keyof typeof policies;

export function policyOf(name: PolicyName, circumstances: Circumstances): Policy {
  const { bound, options } = circumstances;
  return { ...policies[name].decide(circumstances), bound, groupsInFlight: options.groupsInFlight };
}

/** Share of the time that the bound leaves for an answer at full speed which the oracle uses. */
const oracleMargin = 0.85;

function ticketsOf({ steps, groupsPerBatch }: Setting): number {
  return steps * groupsPerBatch;
}
