import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { lossAndGradient } from '../../../shared/rl/losses.js';
import { assertClose } from '../../shared/rl/close.js';
import { type Ref, type Trace, tracedLoss } from './traced.js';

const point = [-0.3, -1.1, -0.7, -2.2];
const vector = (values: readonly number[]) => ({
  shape: [values.length],
  data: Float32Array.from(values),
});

/** The value of a loss that adds up what `record` makes of the logprobs, and its gradient. */
function evaluate(record: (trace: Trace, x: Ref) => Ref, at: readonly number[] = point) {
  const loss = tracedLoss((trace, logprobs) => {
    trace.returns(trace.method('sum', record(trace, logprobs)));
  });
  return loss.evaluate(Float32Array.from(at), {});
}

/** What `record` makes of the logprobs, element by element. */
function elements(record: (trace: Trace, x: Ref) => Ref, count: number, at = point): number[] {
  return Array.from({ length: count }, (_, i) => {
    const pick = (trace: Trace, x: Ref) =>
      trace.call('operator.getitem', trace.method('flatten', record(trace, x)), i);
    return evaluate(pick, at).loss;
  });
}

describe('a custom loss', () => {
  it('a custom loss gives its value, its derivative by each logprob and its metrics', () => {
    const loss = tracedLoss(
      (trace, logprobs, weights) => {
        const product = trace.call('operator.mul', logprobs, weights);
        const total = trace.call('operator.neg', trace.method('sum', product));
        trace.returns(total, {
          'custom/nll:sum': total,
          'custom/length:mean': trace.method('sum', trace.call('torch.ones_like', weights)),
        });
      },
      { weights: 1 },
    );
    const value = loss.evaluate(Float32Array.of(-1, -2, -3), { weights: vector([1, 0, 2]) });
    assertClose([value.loss], [7]);
    assertClose(value.gradient, [-1, -0, -2]);
    assert.deepEqual(value.metrics, { 'custom/nll:sum': 7, 'custom/length:mean': 3 });
  });

  it('a traced ppo is the ppo of the API', () => {
    const ppo = tracedLoss(
      (trace, logprobs, behavior, advantages) => {
        const ratio = trace.call('torch.exp', trace.call('operator.sub', logprobs, behavior));
        const clipped = trace.named('torch.clamp', [ratio], { min: 0.8, max: 1.2 });
        const plain = trace.call('operator.mul', ratio, advantages);
        const surrogate = trace.call(
          'torch.minimum',
          plain,
          trace.call('operator.mul', clipped, advantages),
        );
        trace.returns(trace.call('operator.neg', trace.method('sum', surrogate)));
      },
      { behavior: 1, advantages: 1 },
    );
    const logprob = fc.float({ min: -3, max: 0, noNaN: true });
    const token = fc.tuple(logprob, logprob, fc.float({ min: -2, max: 2, noNaN: true }));
    fc.assert(
      fc.property(fc.array(token, { minLength: 1, maxLength: 5 }), (tokens) => {
        const [current, behavior, advantages] = [0, 1, 2].map((i) => tokens.map((one) => one[i]!));
        const inputs = { logprobs: behavior!, advantages: advantages! };
        const config = { clip_low_threshold: 0.8, clip_high_threshold: 1.2 };
        const expected = lossAndGradient('ppo', current!, inputs, config);
        const found = ppo.evaluate(Float32Array.from(current!), {
          behavior: vector(behavior!),
          advantages: vector(advantages!),
        });
        assertClose([found.loss, ...found.gradient], [expected.loss, ...expected.gradient], 1e-6);
      }),
    );
  });

  const smooth: Record<string, (trace: Trace, x: Ref) => Ref> = {
    'x + 1': (t, x) => t.call('operator.add', x, 1),
    '2 - x': (t, x) => t.call('operator.sub', 2, x),
    'x · x': (t, x) => t.call('operator.mul', x, x),
    '1 / x': (t, x) => t.call('operator.truediv', 1, x),
    'x / x²': (t, x) => t.call('torch.div', x, t.method('square', x)),
    'x³': (t, x) => t.call('operator.pow', x, 3),
    '2^x': (t, x) => t.call('operator.pow', 2, x),
    '-x': (t, x) => t.call('operator.neg', x),
    exp: (t, x) => t.call('torch.exp', x),
    expm1: (t, x) => t.method('expm1', x),
    'log of -x': (t, x) => t.call('torch.log', t.method('neg', x)),
    'log1p of exp': (t, x) => t.call('torch.log1p', t.method('exp', x)),
    'sqrt of -x': (t, x) => t.call('torch.sqrt', t.method('neg', x)),
    'rsqrt of -x': (t, x) => t.call('torch.rsqrt', t.method('neg', x)),
    reciprocal: (t, x) => t.call('torch.reciprocal', x),
    abs: (t, x) => t.call('torch.abs', x),
    sigmoid: (t, x) => t.call('torch.sigmoid', x),
    logsigmoid: (t, x) => t.call('torch._C._nn.log_sigmoid', x),
    softplus: (t, x) => t.call('torch._C._nn.softplus', x),
    tanh: (t, x) => t.method('tanh', x),
    'relu of x + 1': (t, x) =>
      t.named('torch.nn.functional.relu', [t.method('add', x, 1)], { inplace: false }),
    clamp: (t, x) => t.named('torch.clamp', [x], { min: -1, max: -0.5 }),
    'clamp by a tensor': (t, x) => t.call('torch.clamp', t.method('mul', x, 2), x, 3),
    clamp_max: (t, x) => t.method('clamp_max', x, -1),
    maximum: (t, x) => t.call('torch.maximum', x, t.method('mul', x, x)),
    minimum: (t, x) => t.call('torch.minimum', x, t.method('exp', x)),
    where: (t, x) => t.call('torch.where', t.call('operator.gt', x, -1), t.method('exp', x), x),
    masked_fill: (t, x) => t.method('masked_fill', x, t.call('operator.lt', x, -1), 0),
    remainder: (t, x) => t.call('torch.remainder', x, 0.5),
    mean: (t, x) => t.call('operator.mul', t.method('mean', x), x),
    'sum, kept': (t, x) =>
      t.call('operator.mul', t.named('torch.sum', [x], { dim: 0, keepdim: true }), x),
    amax: (t, x) => t.call('torch.amax', x, 0),
    min: (t, x) => t.method('min', x),
    var: (t, x) => t.method('var', x),
    std: (t, x) => t.named('torch.std', [x], { unbiased: false }),
    logsumexp: (t, x) => t.call('torch.logsumexp', x, 0),
    'weighted softmax': (t, x) =>
      t.call('operator.mul', t.named('torch.softmax', [x], { dim: -1 }), x),
    'weighted log_softmax': (t, x) => t.call('operator.mul', t.call('torch.log_softmax', x, 0), x),
    'weighted cumsum': (t, x) => t.call('operator.mul', t.method('cumsum', x, 0), x),
    dot: (t, x) => t.call('torch.dot', x, t.method('exp', x)),
    'outer product': (t, x) =>
      t.call('torch.matmul', t.method('unsqueeze', x, 1), t.method('unsqueeze', x, 0)),
    transpose: (t, x) => {
      const square = t.method('view', x, 2, 2);
      return t.call('operator.mul', square, t.method('t', square));
    },
    'cat and a slice': (t, x) => {
      const both = t.call('torch.cat', [x, t.method('exp', x)]);
      return t.call('operator.getitem', both, { slice: [1, -2, 2] });
    },
    stack: (t, x) =>
      t.call(
        'operator.mul',
        t.named('torch.stack', [[x, x]], { dim: 1 }),
        t.method('unsqueeze', x, -1),
      ),
    'a mask': (t, x) => t.call('operator.getitem', x, t.call('operator.ge', x, -1)),
  };
  for (const [name, record] of Object.entries(smooth)) {
    it(`the derivative of ${name} is the slope of its value`, () => {
      const { gradient } = evaluate(record);
      const step = 1e-3;
      const slopes = point.map((_, i) => {
        const [up, down] = [step, -step].map((change) => {
          const at = Float32Array.from(point.with(i, point[i]! + change));
          return { at: at[i]!, loss: evaluate(record, [...at]).loss };
        });
        return (up!.loss - down!.loss) / (up!.at - down!.at);
      });
      assertClose(gradient, slopes, 1e-3);
      assert(gradient.some((value) => value !== 0));
    });
  }

  it('a view may take its sizes from the shape of a tensor, one by one', () => {
    const record = (t: Trace, x: Ref) => t.method('view', x, t.method('size', x, 0), 1);
    assertClose(evaluate(record).gradient, [1, 1, 1, 1].slice(0, point.length));
  });

  it('the deviation of equal elements has no slope, as in torch', () => {
    const { gradient } = evaluate((t, x) => t.call('torch.std', x), [-1, -1, -1]);
    assert.deepEqual([...gradient], [0, 0, 0]);
  });

  it('no gradient flows through detach', () => {
    const record = (t: Trace, x: Ref) => t.call('operator.mul', t.method('detach', x), x);
    assertClose(evaluate(record).gradient, [...Float32Array.from(point)]);
  });

  it('equal elements share the gradient of their maximum', () => {
    assertClose(evaluate((t, x) => t.call('torch.max', x), [-1, -3, -1]).gradient, [0.5, 0, 0.5]);
  });

  it('shapes, indices and comparisons are those of Python and torch', () => {
    const at = [-1, -2, -3, -4];
    const all = (record: (trace: Trace, x: Ref) => Ref, count: number) =>
      elements(record, count, at);
    const item = (index: unknown) => (t: Trace, x: Ref) =>
      t.call('operator.getitem', t.method('reshape', x, [2, 2]), index);
    assert.deepEqual(all(item(-1), 2), [-3, -4]);
    assert.deepEqual(all(item({ tuple: [{ slice: [null, null, null] }, 1] }), 2), [-2, -4]);
    assert.deepEqual(all(item({ tuple: [{ ellipsis: true }, 0] }), 2), [-1, -3]);
    assert.deepEqual(all(item({ tuple: [null, 0] }), 2), [-1, -2]);
    const last = (t: Trace, x: Ref) => {
      const shape = t.call('getattr', x, 'shape');
      const length = t.call('operator.getitem', shape, 0);
      return t.call('operator.getitem', x, t.call('operator.sub', length, 1));
    };
    assert.deepEqual(all(last, 1), [-4]);
    const count = (t: Trace, x: Ref) => t.method('float', t.call('operator.le', x, -2));
    assert.deepEqual(all(count, 4), [0, 1, 1, 1]);
    assert.deepEqual(
      all((t, x) => t.call('operator.floordiv', x, 2), 4),
      [-1, -1, -2, -2],
    );
    assert.deepEqual(
      all((t, x) => t.method('cumsum', x, 0), 4),
      [-1, -3, -6, -10],
    );
  });

  it('the product of two masks is a mask, their sum is true where either is, and a mask with a number is a number', () => {
    const masks = (trace: Trace, x: Ref) =>
      [trace.call('operator.gt', x, -1), trace.call('operator.lt', x, -0.5)] as const;
    const both = (trace: Trace, x: Ref) =>
      trace.call('operator.getitem', x, trace.call('operator.mul', ...masks(trace, x)));
    assert.deepEqual([...evaluate(both).gradient], [0, 0, 1, 0]);
    const either = (trace: Trace, x: Ref) =>
      trace.call('operator.mul', trace.call('operator.add', ...masks(trace, x)), x);
    assert.deepEqual([...evaluate(either).gradient], [1, 1, 1, 1]);
    for (const [name, picks] of [
      ['torch.minimum', [0, 0, 1, 0]],
      ['torch.maximum', [1, 1, 1, 1]],
    ] as const) {
      const extreme = (trace: Trace, x: Ref) =>
        trace.call('operator.getitem', x, trace.call(name, ...masks(trace, x)));
      assert.deepEqual([...evaluate(extreme).gradient], picks);
    }
    const twice = (trace: Trace, x: Ref) =>
      trace.call('operator.mul', trace.call('operator.mul', masks(trace, x)[0], 2), x);
    assert.deepEqual([...evaluate(twice).gradient], [2, 0, 2, 0]);
  });

  it('an input of integers divides as integers do, and picks by its numbers', () => {
    const loss = tracedLoss(
      (trace, logprobs, places) => {
        const picked = trace.call('operator.getitem', logprobs, places);
        const half = trace.call('operator.truediv', places, 2);
        trace.returns(trace.method('sum', trace.call('operator.mul', picked, half)));
      },
      { places: 1 },
    );
    const places = { shape: [2], data: Int32Array.of(2, -1) };
    const value = loss.evaluate(Float32Array.of(-1, -2, -3, -4), { places });
    assertClose([value.loss], [-3 + 2]);
    assertClose(value.gradient, [0, 0, 1, -0.5]);
  });
});

describe('a custom loss that cannot run', () => {
  const returning = (record: (trace: Trace, x: Ref) => unknown) => () =>
    tracedLoss((trace, x) => {
      trace.returns(record(trace, x));
    });
  const refusal = (message: RegExp) => ({ name: 'PermanentError', message });

  it('a custom loss with a function that is not served is refused, with those that are', () => {
    for (const target of [
      'torch.linalg.det',
      'os.system',
      'torch.Tensor.backward',
      'constructor',
    ]) {
      assert.throws(
        returning((t, x) => t.call(target, x)),
        refusal(new RegExp(`^custom loss "mine": n1: ${target} is not served; there are add, `)),
      );
    }
  });

  it('a custom loss that reads a later node, repeats a name or passes too much is refused', () => {
    assert.throws(
      returning((t) => t.call('torch.exp', { ref: 'later' })),
      refusal(/n1: it reads later, which does not come before it/),
    );
    assert.throws(
      returning((t) => t.input('logprobs')),
      refusal(/its graph reads logprobs, logprobs; expected logprobs and its inputs/),
    );
    assert.throws(
      returning((t, x) => t.call('torch.exp', x, 1)),
      refusal(/exp takes at most 1 arguments here: input/),
    );
    assert.throws(
      returning((t, x) => t.named('torch.sum', [x], { dtype: { dtype: 'float32' } })),
      refusal(/sum has no argument dtype here; it has input, dim, keepdim/),
    );
    assert.throws(
      returning((t, x) => t.call('torch.exp', { device: {} }, x)),
      refusal(/at most 1/),
    );
  });

  it('a custom loss that returns no pair, or a metric of another name, is refused', () => {
    assert.throws(
      returning(() => 3),
      refusal(/output: it returns no pair of a loss and a dictionary of metrics/),
    );
    const metric = () =>
      tracedLoss((trace, x) => {
        trace.returns(trace.method('sum', x), { loss: x });
      });
    assert.throws(metric, refusal(/metric "loss" is not named custom\/<name>:sum/));
  });

  it('a custom loss fails for a datum that lacks an input, or that it turns into no number', () => {
    const needs = tracedLoss(
      (trace, x) => {
        trace.returns(trace.method('sum', x));
      },
      { weights: 1 },
    );
    const logprobs = Float32Array.of(-1, -2);
    assert.throws(
      () => needs.evaluate(logprobs, {}),
      refusal(/it reads weights of rank 1, found none/),
    );
    assert.throws(
      () => needs.evaluate(logprobs, { weights: { shape: [], data: Float32Array.of(1) } }),
      refusal(/it reads weights of rank 1, found rank 0/),
    );
    const whole = tracedLoss((trace, x) => {
      trace.returns(trace.call('torch.exp', x));
    });
    assert.throws(
      () => whole.evaluate(logprobs, {}),
      refusal(/it returns a loss of shape \[2\], not one number/),
    );
  });

  it('a custom loss that reshapes to another size fails, even if the sizes of its axes multiply to that', () => {
    for (const shape of [[-1, 4], [-2, -3], [1.5, 4], [4]]) {
      const wrong = tracedLoss((trace, x) => {
        trace.returns(trace.method('sum', trace.method('reshape', x, shape)));
      });
      const six = new Float32Array(6);
      assert.throws(() => wrong.evaluate(six, {}), refusal(/\[6\] cannot become|integer/));
    }
  });

  it('a custom loss that grows beyond all bounds is stopped', () => {
    const huge = tracedLoss((trace, x) => {
      let doubled = x;
      for (let i = 0; i < 60; i++) doubled = trace.call('torch.cat', [doubled, doubled]);
      trace.returns(trace.method('sum', doubled));
    });
    assert.throws(
      () => huge.evaluate(Float32Array.of(-1, -2), {}),
      refusal(/a tensor of shape \[8388608\] is too large; at most 4194304 elements/),
    );
    const picked = tracedLoss(
      (trace, x, rows) => {
        let wide = x;
        for (let i = 0; i < 16; i++) wide = trace.call('torch.cat', [wide, wide]);
        const table = trace.method('reshape', wide, 1, -1);
        trace.returns(trace.method('sum', trace.call('operator.getitem', table, rows)));
      },
      { rows: 1 },
    );
    const rows = { shape: [4_096], data: new Int32Array(4_096) }; // too many places to be listed first
    assert.throws(
      () => picked.evaluate(Float32Array.of(-1, -2), { rows }),
      refusal(/a tensor of shape \[4096,131072\] is too large/),
    );
    const many = tracedLoss((trace, x) => {
      let wide = x;
      for (let i = 0; i < 21; i++) wide = trace.call('torch.cat', [wide, wide]);
      for (let i = 0; i < 9; i++) wide = trace.call('operator.neg', wide);
      trace.returns(trace.method('sum', wide));
    });
    assert.throws(
      () => many.evaluate(Float32Array.of(-1, -2), {}),
      refusal(/all values together have more than 33554432 elements/),
    );
  });
});
