/** `npm run simulate -- [flags]`: see `simulateHelp`. */
import { UserError } from '../../shared/base/errors.js';
import { userErrorCode } from '../../shared/base/exit-codes.js';
import { printError } from '../../shared/service/telemetry/print-error.js';
import { simulateText } from './simulate.js';

try {
  process.stdout.write(await simulateText(process.argv.slice(2), process.env));
} catch (caught) {
  if (!(caught instanceof UserError)) throw caught;
  printError(caught.message);
  process.exitCode = userErrorCode;
}
