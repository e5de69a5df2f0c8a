import type { z } from 'zod';
import { ActorConfig } from '../../actor/config.js';
import {
  DashboardConfig,
  dashboardService,
  ReportConfig,
  reportService,
} from '../../cli/dashboard/config.js';
import { DeadLettersConfig, deadLettersService } from '../../cli/dead-letters/command.js';
import { DeleteConfig, deleteService } from '../../cli/delete/command.js';
import { DoctorConfig, doctorService } from '../../cli/doctor/doctor-config.js';
import { EvalConfig, evalService } from '../../cli/eval/eval-config.js';
import { ExportConfig, exportService } from '../../cli/export/export.js';
import { ModelConfig, modelService } from '../../cli/model/request.js';
import { NatsConfig, natsConfigService } from '../../cli/nats-config.js';
import { SolveConfig, solveService } from '../../tools/solve/solve.js';
import { StatusConfig } from '../../cli/status/status.js';
import { SweepConfig, sweepService } from '../../tools/sweep/sweep.js';
import { sftShape } from '../../cli/up/sft.js';
import { UpConfig, upService } from '../../cli/up/up-config.js';
import { LearnerConfig } from '../../learner/config.js';
import { Adapters } from '../../learner/settings/adapters.js';
import { Connections } from '../../learner/settings/connections.js';
import { Advantages, Objective } from '../../learner/settings/objective.js';
import { Audit, Duration, Evaluation, Stops } from '../../learner/settings/run-control.js';
import { SupervisedSettings } from '../../learner/settings/supervised.js';
import { Prices } from '../../learner/settings/prices.js';
import { Batches, Optimizer, Task } from '../../learner/settings/training.js';
import { LocalBackendConfig } from '../../local-backend/config.js';
import { RewardServiceConfig } from '../../reward-service/config.js';
import { ScoreServerConfig } from '../../reward-service/score-server/config.js';

/** Settings of one kind. */
export interface Settings {
  readonly title: string;
  readonly shape: z.core.$ZodShape;
}

/** All settings of the learner. */
export const learnerSettings: readonly Settings[] = [
  { title: 'The task', shape: Task.shape },
  { title: 'Sampling, batches and staleness', shape: Batches.shape },
  { title: 'Loss and correction', shape: Objective.shape },
  { title: 'Advantages', shape: Advantages.shape },
  { title: 'Optimizer', shape: Optimizer.shape },
  { title: 'Training on examples', shape: SupervisedSettings.shape },
  { title: 'How long, and checkpoints', shape: Duration.shape },
  { title: 'Evaluation', shape: Evaluation.shape },
  { title: 'When to give up', shape: Stops.shape },
  { title: 'Audit of the actors', shape: Audit.shape },
  { title: 'How adapters reach the actors', shape: Adapters.shape },
  { title: 'What machines and tokens cost', shape: Prices.shape },
  { title: 'Where the learner finds things', shape: Connections.shape },
];

/** The settings of each command, by its name after `offbeat`. */
export const commandSettings: Readonly<
  Record<string, { readonly service: string; readonly shape: z.core.$ZodShape }>
> = {
  up: { service: upService, shape: UpConfig.shape },
  sft: { service: upService, shape: sftShape },
  learner: { service: 'learner', shape: LearnerConfig.shape },
  actor: { service: 'actor', shape: ActorConfig.shape },
  'reward-service': { service: 'reward-service', shape: RewardServiceConfig.shape },
  'score-server': { service: 'score-server', shape: ScoreServerConfig.shape },
  'local-backend': { service: 'local-backend', shape: LocalBackendConfig.shape },
  doctor: { service: doctorService, shape: DoctorConfig.shape },
  model: { service: modelService, shape: ModelConfig.shape },
  export: { service: exportService, shape: ExportConfig.shape },
  eval: { service: evalService, shape: EvalConfig.shape },
  'dead-letters': { service: deadLettersService, shape: DeadLettersConfig.shape },
  delete: { service: deleteService, shape: DeleteConfig.shape },
  sweep: { service: sweepService, shape: SweepConfig.shape },
  'nats-config': { service: natsConfigService, shape: NatsConfig.shape },
  dashboard: { service: dashboardService, shape: DashboardConfig.shape },
  report: { service: reportService, shape: ReportConfig.shape },
  status: { service: 'offbeat-status', shape: StatusConfig.shape },
  solve: { service: solveService, shape: SolveConfig.shape },
};
