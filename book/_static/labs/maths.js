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

  // kl.kl_divergence: Σ p·log(p/q), with 0·log 0 = 0.
  const klDivergence = (p, q) => sum(p.map((value, a) => (value > 0 ? value * (Math.log(value) - Math.log(q[a])) : 0)));

  // closed_form.log_partition: log Σ q·exp(r/β), in the log domain.
  const logPartition = (q, rewards, beta) => logSumExp(q.map((value, a) => Math.log(value) + rewards[a] / beta));

  // closed_form.optimal_policy: q·exp(r/β)/Z.
  function optimalPolicy(q, rewards, beta) {
    const logZ = logPartition(q, rewards, beta);
    return q.map((value, a) => (value > 0 ? Math.exp(Math.log(value) + rewards[a] / beta - logZ) : 0));
  }

  labs.maths = { sum, dot, logSumExp, klDivergence, logPartition, optimalPolicy };
})();
