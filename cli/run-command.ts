import { spawn } from 'node:child_process';

export interface CommandResult {
  readonly code: number | undefined; // undefined: it could not start, was killed or ran too long
  readonly output: string; // standard output and error together, in order of arrival
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** Runs a short command to its end and never throws: the caller decides whether a failure matters. */
export function runCommand(
  command: string,
  args: readonly string[],
  { cwd, timeoutMs, signal }: CommandOptions,
): Promise<CommandResult> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const child = spawn(command, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(cwd !== undefined && { cwd }),
      ...(signal !== undefined && { signal }),
    });
    // Not the option of spawn, whose timer keeps this process alive if the command does not exist.
    const timer = setTimeout(() => child.kill(), timeoutMs);
    const end = (result: CommandResult): void => {
      clearTimeout(timer);
      resolve(result);
    };
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    }
    const output = () => Buffer.concat(chunks).toString().trim();
    child.on('error', (error) => {
      end({ code: undefined, output: `${output()}\n${error.message}`.trim() });
    });
    child.on('close', (code) => {
      end({ code: code ?? undefined, output: output() });
    });
  });
}

/** The last line of a command's output. */
export function lastLine(output: string): string {
  return output.trim().split('\n').at(-1)!.trim() || 'it ended without output';
}
