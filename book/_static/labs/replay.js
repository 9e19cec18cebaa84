// The page's twin of labsrc/labs/replay.py: it trains nothing, it looks runs up that labsrc has recorded.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const STEPS = 20, TARGET = "6";

  // The settings that name a run, by method: toylm.replay.AXES.
  const AXES = {
    grpo: ["group_size", "beta", "clip"],
    rloo: ["group_size", "beta"],
    ppo: ["group_size", "beta", "clip"],
    dpo: ["beta"],
  };
  const CURVES = ["expected_reward", "batch_reward", "kl", "clip_share", "constant_share"];

  const CLIPPED = "Share of tokens that the clip takes out of the gradient, in the last of a step's 3 updates.";
  const CLIP_NOTES = {
    rloo: "RLOO makes one update a step, so every ratio is 1, and its loss has no clip: ε clip changes nothing.",
    dpo: "DPO has no importance ratio and no clip: ε clip changes nothing.",
  };
  const GROUPS_NOTE = "Share of the step's 4 groups in which all rewards are equal.";
  const PAIRS_NOTE = "DPO draws no groups: G changes nothing.";

  // The entries of the steps; the policy after the last one is left out.
  const curveOf = (values) => (values ? values.slice(0, STEPS) : Array(STEPS).fill(NaN));

  // Of the first and the second token of each completion.
  function advantagesOf(run, method, now, count) {
    if (!run.advantages) return Array(count).fill([NaN, NaN]);
    const values = run.advantages[now];
    return Array.from({ length: count }, (_, i) => (method === "ppo" ? [values[2 * i], values[2 * i + 1]] : [values[i], values[i]]));
  }

  function wordsOf(text, index, method) {
    return `${text[0]} ${text[1]}` + (method === "dpo" ? ` ${["chosen", "rejected"][index % 2]}` : "");
  }

  function compute(state) {
    const { method, step } = state, now = step - 1;
    const run = labs.recordings.replay[[method, ...AXES[method].map((axis) => state[axis])].join(" ")];
    const curves = Object.fromEntries(CURVES.map((name) => [name, curveOf(run[name])]));
    const drawn = run.completions[Math.min(now, run.completions.length - 1)].split(" ");
    const rewards = drawn.map((text) => (text[0] === TARGET ? 1 : 0));
    const advantages = advantagesOf(run, method, now, drawn.length);
    return {
      steps: Array.from({ length: STEPS }, (_, index) => index + 1),
      ...curves,
      ...Object.fromEntries(CURVES.map((name) => [`${name}_now`, curves[name][now]])),
      at: step,
      optimum: run.optimum,
      reward_end: run.expected_reward[STEPS],
      kl_end: run.kl[STEPS],
      completion: drawn.map((text, index) => wordsOf(text, index, method)),
      reward: rewards,
      advantage_first: advantages.map(([first]) => first),
      advantage_second: advantages.map(([, second]) => second),
      clip_note: CLIP_NOTES[method] || CLIPPED,
      constant_note: method === "dpo" ? PAIRS_NOTE : GROUPS_NOTE,
      pairs: method === "dpo",
      unclipped: method === "rloo",
      critic: method === "ppo",
      silent: method === "grpo" && new Set(rewards).size === 1,
      call: run.call,
    };
  }

  // The runs stand in a script of their own: there is no twin before they have come.
  Object.defineProperty(labs.twins, "replay", { configurable: true, enumerable: true, get: () => (labs.recordings?.replay ? compute : undefined) });
})();
