import { checkpointRoutes } from '../../local-backend/checkpoint-routes.js';
import type { Route } from '../../local-backend/http-api.js';
import { futureRoutes } from '../../local-backend/future-routes.js';
import { samplingRoutes, sessionRoutes } from '../../local-backend/session-routes.js';
import { trainingRoutes } from '../../local-backend/training-routes.js';

/** The routes without their dependencies: they cannot be called. */
const unused = undefined as never;
export const routes: readonly Route[] = [
  ...sessionRoutes(unused, unused, unused),
  ...trainingRoutes(unused, unused, unused),
  ...samplingRoutes(unused, unused),
  ...futureRoutes(unused, unused, 0),
  ...checkpointRoutes(unused, unused, unused, unused),
];
