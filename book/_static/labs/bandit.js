// The page's twin of labsrc/labs/bandit.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const STEPS = 80, ACTIONS = [0, 1, 2, 3], MOST_DRAWS = 80 * 64, STD_EPS = 1e-4, TIED = 1e-9;

  // A seed's draws do not depend on the other settings, so they are made once while the reader moves those.
  const drawn = { seed: null, uniforms: null };

  function uniformsOf(seed) {
    if (drawn.seed !== seed) Object.assign(drawn, { seed, uniforms: labs.uniforms(seed, MOST_DRAWS) });
    return drawn.uniforms;
  }

  // How often each action was drawn: a uniform goes to the action whose slice of the cumulative distribution holds it.
  function countsOf(policy, uniforms) {
    const edges = [];
    policy.reduce((total, value, a) => (edges[a] = total + value), 0);
    const counts = policy.map(() => 0);
    for (const uniform of uniforms) counts[edges.findIndex((edge) => uniform < edge / edges.at(-1))] += 1;
    return counts;
  }

  const repeated = (counts, values) => counts.flatMap((count, a) => Array(count).fill(values[a]));

  // The gradient of the group's mean of (clipped surrogate − β·k3) on the logits.
  function ascent(logits, logpOld, logpRef, counts, advantages, { beta, clip }) {
    const p = labs.maths.softmax(logits), logp = labs.maths.logSoftmax(logits), size = labs.maths.sum(counts);
    const pushes = ACTIONS.map((a) => {
      if (counts[a] === 0) return 0; // not sampled: its k3, however large, is not in the mean
      const ratio = Math.exp(logp[a] - logpOld[a]), advantage = advantages[a];
      const ended = advantage > 0 ? ratio > 1 + clip : ratio < 1 - clip;
      return counts[a] * ((ended ? 0 : ratio * advantage) + beta * Math.expm1(logpRef[a] - logp[a]));
    });
    const total = labs.maths.sum(pushes);
    return pushes.map((push, a) => (push - p[a] * total) / size);
  }

  // bandit.train_group_bandit: the policy after each step, and how many groups were constant.
  function train({ group_size, lr, inner_updates, seed, rewards, ...radii }) {
    const { softmax, logSoftmax, standardized, isConstant } = labs.maths;
    const uniforms = uniformsOf(seed);
    let logits = ACTIONS.map(() => 0), constant = 0;
    const logpRef = logSoftmax(logits), path = [softmax(logits)];
    for (let step = 0; step < STEPS; step++) {
      const counts = countsOf(path.at(-1), uniforms.subarray(step * group_size, (step + 1) * group_size));
      const group = repeated(counts, rewards), values = standardized(group, STD_EPS, 0);
      const advantages = ACTIONS.map((a) => values[group.indexOf(rewards[a])] ?? 0);
      const logpOld = logSoftmax(logits);
      for (let update = 0; update < inner_updates; update++) {
        const gradient = ascent(logits, logpOld, logpRef, counts, advantages, radii);
        logits = logits.map((value, a) => value + lr * gradient[a]);
      }
      path.push(softmax(logits));
      constant += isConstant(group) ? 1 : 0;
    }
    return { path, constant };
  }

  function optimum(reference, rewards, beta) {
    if (beta > 0) return labs.maths.optimalPolicy(reference, rewards, beta);
    const best = Math.max(...rewards), count = rewards.filter((reward) => reward === best).length;
    return rewards.map((reward) => (reward === best ? 1 / count : 0));
  }

  function compute(state) {
    const { sum, dot, klDivergence } = labs.maths;
    const { rewards } = state, { path, constant } = train(state);
    const start = path[0], p = path.at(-1), highest = Math.max(...rewards);
    const top = p.findIndex((value) => value >= Math.max(...p) - TIED), best = rewards.indexOf(highest);
    return {
      step: path.map((_, index) => index),
      ...Object.fromEntries(ACTIONS.map((a) => [`path_${a}`, path.map((policy) => policy[a])])),
      p,
      optimum: optimum(start, rewards, state.beta),
      expected_reward: dot(p, rewards),
      expected_reward_start: sum(rewards) / 4,
      kl: klDivergence(p, start),
      constant_groups: constant,
      constant_share: constant / STEPS,
      best,
      best_p: p[best],
      half_way: path[STEPS / 2][best],
      top,
      top_p: p[top],
      flat: highest === Math.min(...rewards),
      missed: rewards[top] < highest,
      slow: p[best] < 0.9,
    };
  }

  labs.twins.bandit = compute;
})();
