import type { z } from 'zod';
import type { Environment } from '../shared/service/config.js';

export type ServiceName = 'actor' | 'learner' | 'reward-service' | 'score-server' | 'local-backend';

interface Service {
  readonly config: () => Promise<z.ZodObject>;
  readonly main: () => Promise<(argv: readonly string[], env: Environment) => Promise<void>>;
}

/** The services, each imported when it is asked for: what starts them depends on none of them. */
export const services: Readonly<Record<ServiceName, Service>> = {
  actor: {
    config: async () => (await import('../actor/config.js')).ActorConfig,
    main: async () => (await import('../actor/main.js')).main,
  },
  learner: {
    config: async () => (await import('../learner/config.js')).LearnerConfig,
    main: async () => (await import('../learner/main.js')).main,
  },
  'reward-service': {
    config: async () => (await import('../reward-service/config.js')).RewardServiceConfig,
    main: async () => (await import('../reward-service/main.js')).main,
  },
  'score-server': {
    config: async () =>
      (await import('../reward-service/score-server/config.js')).ScoreServerConfig,
    main: async () => (await import('../reward-service/score-server/main.js')).main,
  },
  'local-backend': {
    config: async () => (await import('../local-backend/config.js')).LocalBackendConfig,
    main: async () => (await import('../local-backend/main.js')).main,
  },
};

/** Imports what makes the run's configuration from the learner's settings. */
export const learnerRunConfig = async () => (await import('../learner/config.js')).runConfig;

export const serviceNames = Object.keys(services) as ServiceName[];
