// The page's twin of labsrc/labs/aggregation.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const METHODS = ["grpo", "bnpo", "dapo", "dr_grpo"], TIED = 1e-9;

  // On policy and with A = 1 a token's derivative is its weight in the aggregation: no autograd is needed. Of a slice
  // with `own` tokens and `size` completions, weighted by the slice's share of the batch.
  const WEIGHTS = {
    grpo: ({ length, batch }) => 1 / (length * batch), // aggregation.mean_of_sequence_means
    bnpo: ({ own, size, batch }) => size / (batch * own), // aggregation.mean_over_tokens of the slice
    dapo: ({ whole }) => 1 / whole, // the same with the batch's token_count
    dr_grpo: ({ batch, maxLength }) => 1 / (batch * maxLength), // aggregation.sum_over_fixed_length
  };

  function weightsOf(method, { lengths, micro_batch, max_length }) {
    const { sum } = labs.maths, whole = sum(lengths), batch = lengths.length;
    return lengths.map((length, index) => {
      const start = index - (index % micro_batch), slice = lengths.slice(start, start + micro_batch);
      if (method === "dr_grpo" && Math.max(...slice) > max_length) {
        throw new Error(`max_length must be a whole number of at least ${Math.max(...slice)}; got ${max_length}`);
      }
      return WEIGHTS[method]({ length, batch, whole, own: sum(slice), size: slice.length, maxLength: max_length });
    });
  }

  function ratiosOf({ ratios, counts }) {
    const tokens = labs.maths.sum(counts), total = labs.maths.dot(counts, ratios.map(Math.log));
    return {
      largest_ratio: Math.max(...ratios),
      smallest_ratio: Math.min(...ratios),
      geometric_mean: Math.exp(total / tokens),
      product: Math.exp(total),
      log_product: total,
      sequence_tokens: tokens,
    };
  }

  const each = (prefix, make) => Object.fromEntries(METHODS.map((name) => [`${prefix}_${name}`, make(name)]));

  function compute(state) {
    const { lengths, advantages, micro_batch } = state, tokens = labs.maths.sum(lengths);
    const weights = Object.fromEntries(METHODS.map((name) => [name, weightsOf(name, state)]));
    const shown = each("weight", (name) => weights[name].map((weight) => weight * tokens));
    const spread = each("spread", (name) => Math.max(...weights[name]) / Math.min(...weights[name]));
    const split = micro_batch < lengths.length;
    const apart = shown.weight_bnpo.some((weight, index) => Math.abs(weight - shown.weight_dapo[index]) > TIED);
    return {
      ...shown,
      ...each("push", (name) => weights[name].map((weight, index) => weight * lengths[index] * advantages[index])),
      ...spread,
      token_count: tokens,
      completions: lengths.length,
      slices: Math.ceil(lengths.length / micro_batch),
      split,
      equal: labs.maths.isConstant(lengths),
      apart: split && apart,
      ...ratiosOf(state),
    };
  }

  labs.twins.aggregation = compute;
})();
