// A plot as a tree: a stretched SVG holds the lines, positioned HTML every word and dot. The twin of labsrc/labs/curves.py.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  const h = (...parts) => labs.h(...parts);
  const clip = (share) => labs.clip(share);
  const pct = (share) => labs.pct(share);
  const pctNumber = (share) => labs.pctNumber(share);
  const bound = (edge, result) => (typeof edge === "string" ? result[edge] : edge);

  function curves(plot, state, result) {
    const x = scaleOf(plot, "x", result), y = scaleOf(plot, "y", result);
    const marks = plot.marks || [], rules = plot.rules || [], regions = plot.regions || [];
    const grid = y.ticks.map((tick) => pctNumber(1 - y(tick))).map((at) => line("0", at, "100", at, "lab-gridline"));
    const box = { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" };
    const picture = h("svg", box,
      regions.filter((region) => region.shaded).map((region) => regionOf(region, x, result)),
      grid,
      rules.map((rule) => ruleOf(rule, x, y, result)),
      plot.lines.map((one) => pathOf(one, x, y, result)));
    const labels = [
      x.ticks.map((tick) => tickOf("x", x(tick), tick, x.format)),
      y.ticks.map((tick) => tickOf("y", 1 - y(tick), tick, y.format)),
      regions.filter((region) => region.label).map((region) => regionLabel(region, x, state, result)),
      rules.filter((rule) => rule.label).map((rule) => ruleLabel(rule, x, y, state, result)),
      plot.lines.filter((one) => one.label).map((one) => lineLabel(one, x, y, result)),
      marks.map((mark) => markOf(mark, x, y, state, result)),
    ];
    const named = { class: "lab-plot", role: "img", "aria-label": labs.fill(plot.alt, result, state) };
    const caption = plot.caption ? h("p", { class: "lab-caption" }, labs.fill(plot.caption, result, state)) : "";
    return [h("div", named,
      h("div", { class: "lab-axis-y" }, plot.y.label),
      h("div", { class: "lab-frame", style: `height:${plot.height}px` }, picture, labels),
      h("div", { class: "lab-axis-x" }, plot.x.label)), caption];
  }

  function scaleOf(plot, name, result) {
    const axis = plot[name];
    const fitted = plot.lines.filter((one) => one.fit).flatMap((one) => result[one[name]]);
    const [low, high] = bound(axis.domain, result) || labs.roundDomain(fitted, false);
    const ticks = axis.log ? labs.logTicks(low, high) : labs.roundTicks(low, high);
    return labs.makeScale(low, high, ticks, axis.format || labs.tickFormat(low, high, axis.log), axis.log);
  }

  function pathOf(one, x, y, result) {
    let steps = "", drawing = false;
    result[one.x].forEach((across, index) => {
      const up = result[one.y][index];
      const known = Number.isFinite(across) && Number.isFinite(up);
      if (known) steps += `${drawing ? "L" : "M"}${pctNumber(x(across))} ${pctNumber(1 - y(up))}`;
      drawing = known;
    });
    return h("path", { class: `lab-line lab-stroke-${one.role}`, d: steps, "stroke-dasharray": one.dash });
  }

  const line = (x1, y1, x2, y2, name) => h("line", { class: name, x1, y1, x2, y2 });

  function regionOf(region, x, result) {
    const [start, end] = [region.start, region.end].map((edge) => clip(x(bound(edge, result))));
    const place = { x: pctNumber(start), y: "0", width: pctNumber(Math.max(end - start, 0)), height: "100" };
    return h("rect", { class: "lab-region", ...place });
  }

  function regionLabel(region, x, state, result) {
    const [start, end] = [region.start, region.end].map((edge) => clip(x(bound(edge, result))));
    const style = `left:${pct(start)};width:${pct(Math.max(end - start, 0))}`;
    return h("span", { class: "lab-region-label", style }, labs.fill(region.label, result, state));
  }

  function ruleOf(rule, x, y, result) {
    const value = bound(rule.at, result);
    const at = rule.axis === "x" ? pctNumber(x(value)) : pctNumber(1 - y(value));
    return rule.axis === "x" ? line(at, "0", at, "100", "lab-rule") : line("0", at, "100", at, "lab-rule");
  }

  function ruleLabel(rule, x, y, state, result) {
    const value = bound(rule.at, result);
    const style = rule.axis === "x" ? `left:${pct(x(value))}` : `top:${pct(1 - y(value))}`;
    return h("span", { class: `lab-rule-label lab-rule-${rule.axis}`, style }, labs.fill(rule.label, result, state));
  }

  function lineLabel(one, x, y, result) {
    const index = Math.floor(one.at * (result[one.x].length - 1) + 0.5);
    const style = `left:${pct(clip(x(result[one.x][index])))};top:${pct(clip(1 - y(result[one.y][index])))}`;
    return h("span", { class: `lab-line-label lab-${one.side} lab-ink-${one.role}`, style }, one.label);
  }

  function markOf(mark, x, y, state, result) {
    const at = [bound(mark.x, result), bound(mark.y, result)];
    if (!at.every(Number.isFinite)) return [];
    const across = clip(x(at[0])), down = clip(1 - y(at[1]));
    const style = `left:${pct(across)};top:${pct(down)}`;
    const dot = h("span", { class: `lab-dot lab-role-${mark.role}`, style });
    if (!mark.label) return [dot];
    const aside = across > 0.6 ? "lab-before" : "lab-after";
    const upright = mark.over && down > 0.15 ? "lab-over" : "lab-under";
    const name = `lab-mark-label ${aside} ${upright} lab-ink-${mark.role}`;
    return [dot, h("span", { class: name, style }, labs.fill(mark.label, result, state))];
  }

  function tickOf(axis, at, value, format) {
    const style = axis === "x" ? `left:${pct(at)}` : `top:${pct(at)}`;
    return h("span", { class: `lab-tick lab-tick-${axis}`, style }, labs.formatValue(value, format));
  }

  Object.assign(labs, { curves });
})();
