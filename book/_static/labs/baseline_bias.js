// The page's twin of labsrc/labs/baseline_bias.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const LARGE_GROUP = 64, SUCCESS = Array.from({ length: 97 }, (_, index) => (index + 2) / 100), PARALLEL = 1e-6;
  const norm = (vector) => Math.sqrt(vector.reduce((total, value) => total + value * value, 0));

  // All ways to draw `size` times from the actions, by how often each came, with their probabilities.
  function countsOf(p, size) {
    const [first, ...others] = p, found = [];
    if (!others.length) return [{ counts: [size], probability: first ** size }];
    let ways = 1; // size over count
    for (let count = 0; count <= size; count++) {
      for (const rest of countsOf(others, size - count)) {
        found.push({ counts: [count, ...rest.counts], probability: ways * first ** count * rest.probability });
      }
      ways = (ways * (size - count)) / (count + 1);
    }
    return found;
  }

  const repeated = (counts, values) => counts.flatMap((count, a) => Array(count).fill(values[a]));

  // exact.group_gradient_moments: an advantage depends on which rewards a group holds, not on their order.
  function momentsOf(p, groups, advantagesOf) {
    const { sum, dot } = labs.maths;
    const estimates = groups.map(({ counts, group, size }) => {
      const advantages = advantagesOf(group);
      let next = 0;
      const onto = counts.map((count) => sum(advantages.slice(next, (next += count))));
      const total = sum(advantages);
      return onto.map((value, a) => (value - p[a] * total) / size);
    });
    const chances = groups.map(({ probability }) => probability);
    const mean = p.map((_, a) => dot(chances, estimates.map((estimate) => estimate[a])));
    const variance = dot(chances, estimates.map((estimate) => sum(estimate.map((value, a) => (value - mean[a]) ** 2))));
    return { mean, variance };
  }

  function angleOf(a, b) {
    const [u, v] = [a, b].map((vector) => vector.map((value) => value / norm(vector)));
    const [difference, total] = [-1, 1].map((sign) => norm(u.map((value, index) => value + sign * v[index])));
    const angle = (2 * Math.atan2(difference, total) * 180) / Math.PI;
    return angle > PARALLEL ? angle : 0;
  }

  // exact.standardized_objective_weight, with the binomial coefficients one from the other.
  function weightOf(p, size, ddof) {
    let ways = 1, total = 0;
    for (let successes = 0; successes < size; successes++) {
      const failures = size - 1 - successes;
      const gap = Math.sqrt(failures / (successes + 1)) + Math.sqrt(successes / (size - successes));
      total += ways * p ** successes * (1 - p) ** failures * gap;
      ways = (ways * failures) / (successes + 1);
    }
    return total * Math.sqrt((size - ddof) / size);
  }

  function compute(state) {
    const { sum, dot, centered, standardized } = labs.maths;
    const { rewards, weights, group_size: size, std_eps } = state, ddof = Number(state.ddof);
    const whole = sum(weights), p = weights.map((weight) => weight / whole), value = dot(p, rewards);
    const highest = Math.max(...rewards), flat = highest === Math.min(...rewards);
    const truth = p.map((chance, a) => chance * (rewards[a] - value));
    const groups = countsOf(p, size).map((one) => ({ ...one, size, group: repeated(one.counts, rewards) }));
    const moments = {
      raw: momentsOf(p, groups, (group) => group),
      centered: momentsOf(p, groups, centered),
      leave_one_out: momentsOf(p, groups, (group) => centered(group).map((one) => (one * size) / (size - 1))),
      standardized: momentsOf(p, groups, (group) => standardized(group, std_eps, ddof)),
    };
    const all = Object.values(moments), gradients = [truth, ...all.map(({ mean }) => mean)];
    const lengths = gradients.map(norm), ratios = lengths.map((length) => (flat ? NaN : length / lengths[0]));
    const angles = gradients.map((gradient) => (flat ? NaN : angleOf(gradient, truth)));
    const success = sum(p.filter((_, a) => rewards[a] === highest)), binary = new Set(rewards).size === 2;
    return {
      p,
      gradient_truth: truth,
      ...Object.fromEntries(Object.entries(moments).map(([name, { mean }]) => [`gradient_${name}`, mean])),
      length: lengths,
      length_ratio: ratios,
      angle: angles,
      spread: [0, ...all.map(({ variance }) => Math.sqrt(variance))],
      kept: ratios[2],
      turned: angles[4],
      scaled: ratios[4],
      one_less: 1 - 1 / size,
      groups: p.length ** size,
      success,
      weight_here: binary ? weightOf(success, size, ddof) : NaN,
      weight_limit_here: binary ? 1 / Math.sqrt(success * (1 - success)) : NaN,
      curve_p: SUCCESS,
      curve_weight: SUCCESS.map((at) => weightOf(at, size, ddof)),
      curve_large: SUCCESS.map((at) => weightOf(at, LARGE_GROUP, ddof)),
      curve_limit: SUCCESS.map((at) => 1 / Math.sqrt(at * (1 - at))),
      binary,
      flat,
    };
  }

  labs.twins.baseline_bias = compute;
})();
