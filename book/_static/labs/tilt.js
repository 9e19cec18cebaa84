// The page's twin of labsrc/labs/tilt.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const FRONTIER_BETAS = Array.from({ length: 101 }, (_, index) => 10 ** ((index - 50) / 20));

  function compute({ beta, rewards, weights }) {
    const { sum, dot, klDivergence, logPartition, optimalPolicy } = labs.maths;
    const total = sum(weights);
    if (total <= 0) throw new Error("weights must have at least one entry above 0");
    const q = weights.map((weight) => weight / total);
    const p = optimalPolicy(q, rewards, beta);
    const kl = klDivergence(p, q), best = logPartition(q, rewards, beta);
    const expected = dot(p, rewards), worth = expected - beta * kl;
    const supported = rewards.filter((_, a) => q[a] > 0);
    const bestSupported = Math.max(...supported), spread = bestSupported - Math.min(...supported);
    const frontier = FRONTIER_BETAS.map((point) => optimalPolicy(q, rewards, point * (spread > 0 ? spread : 1)));
    const top = p.findIndex((value) => value >= Math.max(...p) - 1e-12);
    return {
      q,
      p,
      expected_reward: expected,
      expected_reward_ref: dot(q, rewards),
      kl,
      objective: worth,
      log_partition: best,
      beta_log_partition: beta * best,
      frontier_kl: frontier.map((point) => klDivergence(point, q)),
      frontier_reward: frontier.map((point) => dot(point, rewards)),
      worth_kl: [0, 10],
      worth_reward: [worth, worth + 10 * beta],
      best_supported: bestSupported,
      top,
      top_p: p[top],
      top_q: q[top],
      unreachable: Math.max(...rewards) > bestSupported,
      flat: spread === 0,
    };
  }

  labs.twins.tilt = compute;
})();
