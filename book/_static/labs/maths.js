// The few functions that the twins of several labs share. Each is the twin of the labsrc function it names.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const dot = (a, b) => sum(a.map((value, index) => value * b[index]));

  function logSumExp(values) {
    const top = Math.max(...values);
    return top === -Infinity ? -Infinity : top + Math.log(sum(values.map((value) => Math.exp(value - top))));
  }

  // Subtracting the largest entry keeps all digits where the entries are large, and nothing overflows.
  function softmax(values) {
    const top = Math.max(...values), weights = values.map((value) => Math.exp(value - top)), total = sum(weights);
    return weights.map((weight) => weight / total);
  }

  const logSoftmax = (values) => {
    const total = logSumExp(values);
    return values.map((value) => value - total);
  };

  // kl.kl_divergence: Σ p·log(p/q), with 0·log 0 = 0.
  const klDivergence = (p, q) => sum(p.map((value, a) => (value > 0 ? value * (Math.log(value) - Math.log(q[a])) : 0)));

  const logWeights = (q, rewards, beta) => q.map((value, a) => Math.log(value) + rewards[a] / beta);

  // closed_form.log_partition: log Σ q·exp(r/β).
  const logPartition = (q, rewards, beta) => logSumExp(logWeights(q, rewards, beta));

  // closed_form.optimal_policy: q·exp(r/β)/Z.
  const optimalPolicy = (q, rewards, beta) => softmax(logWeights(q, rewards, beta));

  const mean = (values) => sum(values) / values.length;
  const isConstant = (values) => values.every((value) => value === values[0]);

  // The standard deviation, over n − ddof.
  function deviation(values, ddof) {
    const middle = mean(values);
    return Math.sqrt(sum(values.map((value) => (value - middle) ** 2)) / (values.length - ddof));
  }

  // advantages.centered of one group: exactly 0 where all its rewards are equal.
  function centered(rewards) {
    const middle = isConstant(rewards) ? rewards[0] : mean(rewards);
    return rewards.map((reward) => reward - middle);
  }

  // advantages.standardized of one group; with the deviation of a batch as `scale`, advantages.batch_standardized.
  function standardized(rewards, stdEps, ddof, scale = deviation(rewards, ddof)) {
    return centered(rewards).map((value) => (value === 0 ? 0 : value / (scale + stdEps)));
  }

  labs.maths = {
    sum, dot, mean, logSumExp, softmax, logSoftmax, klDivergence, logPartition, optimalPolicy,
    isConstant, deviation, centered, standardized,
  };
})();
