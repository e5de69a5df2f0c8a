import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { packageRoot } from '../../../shared/base/package-root.js';
import { executable } from '../../cli/nats-server/fakes.js';

/** Files under `folder`, each with the folders above it. */
async function write(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

/**
 * The real script in an unpacked bundle whose programs only pretend: TuFT answers, `offbeat up` writes two steps.
 *
 * @returns the script.
 */
export async function fakeBundle(folder: string, manifest: object): Promise<string> {
  const bundle = join(folder, 'bundle');
  const config = JSON.stringify({ model_type: 'qwen3' });
  await write(folder, { 'manifest.json': JSON.stringify(manifest) });
  await write(bundle, {
    'offbeat/package.json': JSON.stringify({ version: '1.2.3' }),
    'offbeat/shared/model/base/config.json': config,
    'offbeat/tools/tuft-cpu/tuft_cpu.py': tuft,
    'site/.complete': '', // its wheels are unpacked
  });
  await executable(join(bundle, 'bin/nats-server'), '#!/bin/sh\n');
  await executable(join(bundle, 'bin/node'), `#!/usr/bin/env python3\n${node}`);
  const script = join(bundle, 'gpu_test.py');
  await copyFile(join(packageRoot, 'tools/gpu-test/gpu_test.py'), script);
  return script;
}

/** What a Python with a GPU has: torch, transformers, and this release of vLLM, if any, which writes its flags and fails. */
export async function fakePackages(folder: string, vllm?: string): Promise<void> {
  const name = `Metadata-Version: 2.1\nName: vllm\nVersion: ${vllm}\n`;
  await write(folder, {
    'torch.py': torch,
    'transformers.py': '',
    'vllm/entrypoints/cli/main.py': 'import sys\nsys.exit(" ".join(["no room for", *sys.argv]))\n',
    ...(vllm !== undefined && { [`vllm-${vllm}.dist-info/METADATA`]: name }),
  });
}

const torch = `
from types import SimpleNamespace as Some
version = Some(cuda="12.8")
cuda = Some(is_available=lambda: True, is_bf16_supported=lambda: True,
            get_device_properties=lambda _: Some(name="Pretended GPU", total_memory=1 << 34))
`;

const tuft = `
import http.server, json, sys
port = next(int(word.split("=")[1]) for word in sys.argv if word.startswith("--port="))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = {"training_runs": [{"training_run_id": "a"}],
                 "checkpoints": [{"time": 1, "checkpoint_id": "b", "checkpoint_type": "sampler"}]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
`;

const node = `
import json, pathlib, sys
if sys.argv[1] == "--version":
    sys.exit(print("v22.0.0"))
run = pathlib.Path("runs/gpu")
run.mkdir(parents=True)
(run / "argv").write_text(" ".join(sys.argv[1:]))
(run / "metrics.jsonl").write_text(2 * (json.dumps({"seconds": 2.5}) + "\\n"))
(run / "summary.json").write_text(json.dumps({"steps": 2, "cost": {"tokens": {}}}))
`;
