// The page's twin of labsrc/labs/kl_estimators.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const NOISE = 1e-12, UPHILL = -1e-9, EQUAL = 1e-9, SHORTEST = 1e-8;

  // kl.kl_k1, kl_k2, kl_k3 of one action, and their derivatives by log π; Δ = log ref/π.
  const ESTIMATORS = {
    k1: { value: (delta) => -delta, slope: () => 1 },
    k2: { value: (delta) => (delta * delta) / 2, slope: (delta) => -delta },
    k3: { value: (delta) => Math.expm1(delta) - delta, slope: (delta) => -Math.expm1(delta) },
  };
  const NAMES = Object.keys(ESTIMATORS);

  // kl_estimators.PLACEMENTS: what one sample's gradient is, as a multiple of ∇log π.
  const PLACEMENTS = {
    "loss": ({ slope }) => slope,
    "loss, ρ detached": ({ slope }, ratio) => ratio * slope,
    "loss, ρ in graph": ({ value, slope }, ratio) => ratio * (value + slope),
    "reward": ({ value }) => value,
    "reward, with ρ": ({ value }, ratio) => ratio * value,
  };

  const norm = (vector) => Math.sqrt(labs.maths.dot(vector, vector));
  const isNear = (a, b) => a.every((value, index) => Math.abs(value - b[index]) <= EQUAL);

  // exact.kl_gradient: p·(log p/q − KL).
  function klGradient(p, q) {
    const logRatio = p.map((value, a) => Math.log(value) - Math.log(q[a])), mean = labs.maths.dot(p, logRatio);
    return p.map((value, a) => value * (logRatio[a] - mean));
  }

  // kl_estimators.gradient_moments: ∇log π(a) is onehot(a) − p.
  function gradientMoments(weights, p, sampling) {
    const { sum, dot } = labs.maths;
    const bySample = weights.map((weight, a) => p.map((value, b) => weight * ((a === b ? 1 : 0) - value)));
    const mean = p.map((_, b) => dot(sampling, bySample.map((gradient) => gradient[b])));
    const variance = sum(bySample.map((gradient, a) => {
      return sampling[a] * sum(gradient.map((value, b) => (value - mean[b]) ** 2));
    }));
    return { mean, variance };
  }

  // kl_estimators.compared.
  function compared(gradient, truth, forward) {
    const known = [["∇KL(π‖ref)", truth], ["∇KL(ref‖π)", forward], ["0", truth.map(() => 0)]];
    const equals = (known.find(([, other]) => isNear(gradient, other)) || [""])[0];
    if (equals === "0") return [equals, NaN];
    const lengths = Math.max(norm(gradient), SHORTEST) * Math.max(norm(truth), SHORTEST);
    return [equals, labs.maths.dot(gradient, truth) / lengths];
  }

  function valueMoments(values, sampling) {
    const { dot } = labs.maths;
    const mean = dot(sampling, values);
    return { mean, variance: dot(sampling, values.map((value) => (value - mean) ** 2)) };
  }

  function cellText([equals, cosine], flat) {
    const shown = { "∇KL(π‖ref)": "✓", "∇KL(ref‖π)": "other\u00a0KL", "0": "zero" }[equals];
    return shown || (flat ? "not 0" : labs.formatValue(cosine, "+.2f"));
  }

  function samplesOf(oldShare) {
    if (oldShare > 0 && oldShare < 1) return `${labs.formatValue(oldShare, ".0%")} of the samples old`;
    return oldShare ? "all samples old" : "fresh samples";
  }

  const listed = (names) => (names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join(""));
  const perName = (prefix, make) => Object.fromEntries(NAMES.map((name) => [prefix + name, make(name)]));

  function compute({ policy, reference, old, old_share, placement }) {
    const { sum, klDivergence } = labs.maths;
    const [p, q, before] = [policy, reference, old].map((weights) => {
      const total = sum(weights);
      return weights.map((weight) => weight / total);
    });
    const sampling = p.map((value, a) => (1 - old_share) * value + old_share * before[a]);
    const deltas = p.map((value, a) => Math.log(q[a]) - Math.log(value));
    const ratios = p.map((value, a) => Math.exp(Math.log(value) - Math.log(sampling[a])));
    const kl = klDivergence(p, q), flat = Math.abs(kl) < NOISE;
    const truth = klGradient(p, q), forward = p.map((value, a) => value - q[a]);
    const parts = perName("", (name) => {
      const { value, slope } = ESTIMATORS[name];
      return deltas.map((delta) => ({ value: value(delta), slope: slope(delta) }));
    });
    const weighted = placement.includes("ρ");
    const moments = perName("", (name) => {
      return valueMoments(parts[name].map(({ value }, a) => (weighted ? ratios[a] * value : value)), sampling);
    });
    const gradientIn = (place, name) => gradientMoments(parts[name].map((one, a) => PLACEMENTS[place](one, ratios[a])), p, sampling);
    const here = perName("", (name) => gradientIn(placement, name));
    const known = perName("", (name) => compared(here[name].mean, truth, forward));
    const cosines = NAMES.map((name) => (flat ? NaN : known[name][1]));
    const uphill = NAMES.filter((_, index) => cosines[index] < UPHILL);
    const exact = NAMES.filter((name) => known[name][0] === "∇KL(π‖ref)");
    const finite = cosines.filter((cosine) => !Number.isNaN(cosine));
    const cellsOf = (name) => Object.keys(PLACEMENTS).map((place) => cellText(compared(gradientIn(place, name).mean, truth, forward), flat));
    return {
      p,
      q,
      sampling,
      kl,
      kl_forward: klDivergence(q, p),
      mean: [kl, ...NAMES.map((name) => moments[name].mean)],
      spread: [NaN, ...NAMES.map((name) => Math.sqrt(moments[name].variance))],
      cosine: [flat ? NaN : 1, ...cosines],
      gradient_spread: [NaN, ...NAMES.map((name) => Math.sqrt(here[name].variance))],
      gradient_truth: truth,
      ...perName("gradient_", (name) => here[name].mean),
      ...perName("table_", cellsOf),
      exact_names: listed(exact) || "none of the three",
      uphill_names: listed(uphill),
      lowest_cosine: finite.length ? Math.min(...finite) : NaN,
      samples: samplesOf(old_share),
      flat,
      uphill: uphill.length > 0,
    };
  }

  labs.twins.kl_estimators = compute;
})();
