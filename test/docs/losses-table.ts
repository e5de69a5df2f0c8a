import { fileURLToPath } from 'node:url';
import { losses, lossSettings, type LossName, type LossSetting } from '../../shared/rl/losses.js';
import { alignedTable, withSection } from './markdown-table.js';

export const objectivePage = fileURLToPath(new URL('../../../docs/objective.md', import.meta.url));

const flags: Readonly<Record<LossSetting, string>> = {
  clip_low_threshold: '--clip-low',
  clip_high_threshold: '--clip-high',
  beta: '--dro-beta',
};

/** The page with the current losses and the learner's defaults for them. */
export function updatedObjective(page: string): string {
  const head = ['`--loss`', 'sum over tokens, to be minimized', 'flags', 'passes'];
  return withSection(page, 'the losses', alignedTable([head, ...rows()]));
}

function rows(): string[][] {
  return Object.entries(losses).map(([name, { formula, scaledBy }]) => {
    const settings = Object.entries(lossSettings(name as LossName, {}, 'learner'));
    const words = settings.map(([key, value]) => `${flags[key as LossSetting]} ${value}`);
    // Without an input that scales it, the loss needs the prompt's current logprobs first.
    const passes = scaledBy === undefined ? 2 : 1;
    return [
      `\`${name}\``,
      formula,
      words.length > 0 ? `\`${words.join(' ')}\`` : '',
      String(passes),
    ];
  });
}
