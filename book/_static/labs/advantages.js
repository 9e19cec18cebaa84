// The page's twin of labsrc/labs/advantages.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const MOST_PROMPTS = 4, FUNCTIONS = { group: "standardized", batch: "batch_standardized" };

  function advantagesOf({ rewards, std_eps, baseline, scale }, ddof) {
    const { centered, standardized, deviation } = labs.maths;
    const size = rewards[0].length, factor = baseline === "leave_one_out" ? size / (size - 1) : 1;
    const whole = scale === "batch" ? deviation(rewards.flat(), ddof) : undefined;
    const one = (group) => (scale === "none" ? centered(group) : standardized(group, std_eps, ddof, whole));
    return rewards.map((group) => one(group).map((value) => value * factor));
  }

  function callOf(scale, baseline, size) {
    const alone = baseline === "leave_one_out";
    if (scale === "none") return { function: alone ? "leave_one_out" : "centered", options: "", times: "" };
    return { function: FUNCTIONS[scale], options: ", **guard", times: alone ? ` * ${size} / ${size - 1}` : "" };
  }

  const largestOf = (values) => Math.max(...values.map(Math.abs));

  function compute(state) {
    const { sum, mean, deviation, isConstant } = labs.maths;
    const { rewards } = state, ddof = Number(state.ddof);
    const advantages = advantagesOf(state, ddof), constant = rewards.map(isConstant);
    const byGroup = advantages.map(largestOf), largest = Math.max(...byGroup), reach = largest || 1;
    const deviations = rewards.map((group) => deviation(group, ddof));
    const live = byGroup.filter((_, index) => !constant[index]), count = rewards.length - live.length;
    return {
      advantages,
      ...Object.fromEntries(Array.from({ length: MOST_PROMPTS }, (_, i) => [`advantages_${i + 1}`, advantages[i] ?? []])),
      advantage_domain: [-reach, reach],
      group_mean: rewards.map(mean),
      group_std: deviations,
      largest_by_group: byGroup,
      sum_of_squares: advantages.map((group) => sum(group.map((value) => value * value))),
      is_constant: constant.map((one) => (one ? "yes" : "no")),
      prompts: rewards.length,
      constant: count,
      constant_share: count / rewards.length,
      batch_mean: mean(rewards.flat()),
      batch_std: deviation(rewards.flat(), ddof),
      mean_group_std: mean(deviations),
      largest,
      smallest_live: live.length ? Math.min(...live) : 0,
      all_constant: live.length === 0,
      some_constant: count > 0,
      ...callOf(state.scale, state.baseline, rewards[0].length),
    };
  }

  labs.twins.advantages = compute;
})();
