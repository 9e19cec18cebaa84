// The page's twin of labsrc/labs/clip.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const SPANS = [2, 4, 6];
  const KEPT = "kept: wrong way", CLIPPED = "clipped: enough", FLOOR = "clipped: floor", INSIDE = "inside";
  const FIRST_RATIO = 1e-3, BESIDE = 1e-4, ON_EDGE = 1e-9;

  // policy_gradient.clipped_surrogate and dual_clipped_surrogate for one token.
  function surrogate(ratio, advantage, { clip_low, clip_high, dual, dual_clip }) {
    const held = Math.min(Math.max(ratio, 1 - clip_low), 1 + clip_high);
    const value = Math.min(ratio * advantage, held * advantage);
    return dual && advantage < 0 ? Math.max(value, dual_clip * advantage) : value;
  }

  function kinks(advantage, { clip_low, clip_high, dual, dual_clip }) {
    if (advantage > 0) return [1 + clip_high];
    return advantage < 0 ? [1 - clip_low, ...(dual ? [dual_clip] : [])] : [];
  }

  // The derivative of `surrogate`; NaN at a kink.
  function slopeAt(ratio, advantage, state) {
    if (kinks(advantage, state).some((edge) => Math.abs(ratio - edge) < ON_EDGE)) return NaN;
    const pastHigh = advantage > 0 && ratio > 1 + state.clip_high;
    const pastLow = advantage < 0 && ratio < 1 - state.clip_low;
    const pastFloor = advantage < 0 && state.dual && ratio > state.dual_clip;
    return pastHigh || pastLow || pastFloor ? 0 : advantage;
  }

  // The number of the case that holds, as the rows of the table count; -1 inside, on an edge and without a signal.
  function caseOf({ ratio, advantage, clip_low, clip_high, dual, dual_clip }) {
    const low = 1 - clip_low - ON_EDGE, high = 1 + clip_high + ON_EDGE;
    if (advantage === 0 || (low <= ratio && ratio <= high)) return -1;
    if (advantage > 0) return ratio > high ? 0 : 1;
    if (ratio < low) return 2;
    return dual && ratio > dual_clip + ON_EDGE ? 4 : 3;
  }

  function caseSlopes(state, low, high) {
    const size = Math.abs(state.advantage), above = (high + 2) / 2, below = low / 2;
    const negative = [below, above, ...(state.dual ? [state.dual_clip + 1] : [])];
    return [...[above, below].map((at) => slopeAt(at, size, state)), ...negative.map((at) => slopeAt(at, -size, state))];
  }

  // What stands at the top of each region; the outcome alone where the axis is long and the regions are narrow.
  function names(advantage, hasFloor, wide) {
    if (advantage === 0) return { name_low: "", name_inside: "no signal", name_high: "", name_floor: "" };
    const [low, high, floor] = [...(advantage > 0 ? [KEPT, CLIPPED] : [CLIPPED, KEPT]), hasFloor ? FLOOR : ""]
      .map((name) => (wide ? name : name.split(":")[0]));
    return { name_low: low, name_inside: wide ? INSIDE : "", name_high: high, name_floor: floor };
  }

  function axisOf(values, below = 0.15, above = 0.15) {
    const low = Math.min(...values), high = Math.max(...values), size = high > low ? high - low : 1;
    return [low - below * size, high + above * size];
  }

  function compute(state) {
    const { ratio, advantage, clip_low, clip_high, dual, dual_clip: floor } = state;
    const low = 1 - clip_low, high = 1 + clip_high;
    const span = SPANS.find((end) => end >= Math.max(ratio + 0.25, dual ? floor + 0.5 : 0)) ?? SPANS.at(-1);
    const near = [low, high, ...(dual ? [floor] : [])].flatMap((edge) => [-BESIDE, 0, BESIDE].map((step) => edge + step));
    const xs = [FIRST_RATIO, ...near, span];
    const value = surrogate(ratio, advantage, state), slope = slopeAt(ratio, advantage, state);
    const curveValue = xs.map((at) => surrogate(at, advantage, state));
    const number = caseOf(state), hasFloor = dual && advantage < 0;
    const shaded = advantage > 0 ? [high, span] : advantage < 0 ? [0, low] : [0, 0];
    const unclipped = [FIRST_RATIO * advantage, span * advantage];
    return {
      ratio_here: ratio,
      objective: value,
      slope,
      unclipped: ratio * advantage,
      low,
      high,
      ratio_axis: [0, span],
      value_axis: axisOf([0, ...curveValue, ...unclipped]),
      slope_axis: axisOf([0, advantage], 0.3, 0.35),
      curve_ratio: xs,
      curve_value: curveValue,
      curve_slope: xs.map((at) => slopeAt(at, advantage, state)),
      line_ratio: [FIRST_RATIO, span],
      line_value: unclipped,
      line_slope: [advantage, advantage],
      shaded_start: shaded[0],
      shaded_end: shaded[1],
      floor_start: hasFloor ? floor : span,
      region_end: span,
      ...names(advantage, hasFloor, span === SPANS[0]),
      case_slope: caseSlopes(state, low, high),
      case_name: [CLIPPED, KEPT, CLIPPED, KEPT, ...(dual ? [FLOOR] : [])],
      case_now: Array.from({ length: dual ? 5 : 4 }, (_, index) => (index === number ? "●" : "")),
      no_signal: advantage === 0,
      on_policy: Math.abs(ratio - 1) < ON_EDGE,
      on_kink: kinks(advantage, state).some((edge) => Math.abs(ratio - edge) < ON_EDGE),
      is_floored: number === 4,
      is_clipped: number === 0 || number === 2,
      is_kept: number === 1 || number === 3,
      edge: ratio > 1 ? high : low,
      surrogate: dual ? "dual_clipped_surrogate" : "clipped_surrogate",
      more_radii: dual ? `, dual_clip=${labs.formatValue(floor, "py")}` : "",
    };
  }

  labs.twins.clip = compute;
})();
