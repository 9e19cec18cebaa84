// Panels as trees: bars, stacked bars, tiles, tables, the sentence. The twin of labsrc/labs/draw.py.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  const h = (...parts) => labs.h(...parts);
  const format = (value, fmt) => labs.formatValue(value, fmt);

  function draw(panel, state, result) {
    // Bars of rows that are not there, as of a prompt that the reader has not added.
    if (panel.type === "bars" && !panel.series.every((series) => result[series.key].length)) return "";
    const kinds = { bars, numbers, curves: labs.curves, stacked, grid };
    const title = panel.title ? h("p", { class: "lab-panel-title" }, panel.title) : "";
    const name = `lab-panel lab-${panel.type}` + (panel.wide ? " lab-wide" : "");
    return h("div", { class: name }, title, kinds[panel.type](panel, state, result));
  }

  function sentence(words, state, result) {
    const found = (words.cases || []).find(([key]) => result[key]);
    return labs.fill(found ? found[1] : words.otherwise, result, state);
  }

  function rowNames(rows, count) {
    if (Array.isArray(rows)) return rows.slice(0, count);
    return Array.from({ length: count }, (_, index) => (rows === "letter" ? labs.letter(index) : String(index + 1)));
  }

  // ---------------------------------------------------------------- bars

  const swatch = (role) => h("span", { class: `lab-swatch lab-role-${role}` });

  function legend(series) {
    const keys = series.map((one) => h("span", { class: "lab-key" }, swatch(one.role), h("span", {}, one.label)));
    return h("span", { class: "lab-legend" }, keys);
  }

  function fillOf(role, start, end) {
    const style = `left:${labs.pct(start)};width:${labs.pct(end - start)}`;
    return h("span", { class: `lab-fill lab-role-${role}`, style });
  }

  function barRows(panel, result) {
    const columns = panel.series.map((series) => result[series.key]);
    const given = typeof panel.domain === "string" ? result[panel.domain] : panel.domain;
    const [low, high] = given || labs.roundDomain(columns.flat(), true);
    const count = Math.min(...columns.map((column) => column.length));
    return Array.from({ length: count }, (_, index) => barRow(panel, columns.map((c) => c[index]), low, high));
  }

  function barRow(panel, values, low, high) {
    const texts = values.map((value, index) => format(value, panel.series[index].format));
    const words = texts.map((text, index) => `${panel.series[index].label} ${text}`).join(", ");
    const zero = low < 0 ? h("span", { class: "lab-zero", style: `left:${labs.pct(labs.share(0, low, high))}` }) : "";
    const rows = values.map((value, index) => {
      const [start, end] = [0, value].map((edge) => labs.share(edge, low, high)).sort((a, b) => a - b);
      const track = h("span", { class: "lab-track" }, fillOf(panel.series[index].role, start, end), zero);
      return h("span", { class: "lab-bar" }, track, h("span", { class: "lab-value" }, texts[index]));
    });
    return h("div", { class: "lab-bar-group", role: "img", "aria-label": words }, rows);
  }

  const namedRow = (name, content) => h("div", { class: "lab-row" }, h("span", { class: "lab-row-name" }, name), content);

  function bars(panel, state, result) {
    const groups = barRows(panel, result);
    const names = rowNames(panel.rows, groups.length);
    return [legend(panel.series), groups.map((group, index) => namedRow(names[index], group))];
  }

  function stacked(panel, state, result) {
    const totals = panel.rows.map((_, index) => panel.parts.reduce((sum, part) => sum + result[part.key][index], 0));
    const high = (panel.domain || labs.roundDomain(totals, true))[1];
    const rows = panel.rows.map((name, index) => {
      let start = 0;
      const pieces = [], words = [];
      for (const part of panel.parts) {
        const size = result[part.key][index];
        pieces.push(fillOf(part.role, labs.share(start, 0, high), labs.share(start + size, 0, high)));
        words.push(`${part.label} ${format(size, part.format)}`);
        start += size;
      }
      const total = `${format(totals[index], panel.format)} ${panel.unit || ""}`.trim();
      const bar = h("span", { class: "lab-bar" }, h("span", { class: "lab-track" }, pieces), h("span", { class: "lab-value" }, total));
      const group = { class: "lab-bar-group", role: "img", "aria-label": `${words.join(", ")}; total ${total}` };
      return namedRow(name, h("div", group, bar));
    });
    return [legend(panel.parts), rows];
  }

  // ---------------------------------------------------------------- numbers

  function numbers(panel, state, result) {
    const tiles = panel.tiles.map((tile) => {
      const note = tile.note ? h("dd", { class: "lab-note" }, labs.fill(tile.note, result, state)) : "";
      const number = h("dd", { class: "lab-number" }, format(result[tile.key], tile.format));
      return h("div", { class: "lab-tile" }, h("dt", {}, tile.label), number, note);
    });
    return [h("dl", { class: "lab-tiles" }, tiles)];
  }

  function grid(panel, state, result) {
    const count = result[panel.columns[0].key].length;
    const heads = [panel.corner || "", ...panel.columns.map((c) => c.label)].map((label) => h("th", { scope: "col" }, label));
    const rows = rowNames(panel.rows, count).map((name, index) => {
      const cells = panel.columns.map((c) => h("td", {}, format(result[c.key][index], c.format)));
      return h("tr", {}, h("th", { scope: "row" }, name), cells);
    });
    const table = h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
    return [h("div", { class: "lab-scroll" }, table)];
  }

  Object.assign(labs, { draw, sentence, legend, barRows, rowNames });
})();
