// States of a lab: checked, compared, written into the page's address and read from it.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  const isSheet = (control) => control.type === "table" || control.type === "matrix";

  // Why a typed number cannot stand in its cell; empty where it can. The twin of cell_problem in labsrc/labs/cells.py.
  function cellProblem(value, bounds) {
    const fits = value !== null && Number.isFinite(value) && value >= bounds.minimum && value <= bounds.maximum;
    if (fits && !(bounds.integer && value % 1)) return "";
    const ends = [bounds.minimum, bounds.maximum].map((end) => labs.formatValue(end, ".6g"));
    return `Type a ${bounds.integer ? "whole number" : "number"} from ${ends[0]} to ${ends[1]}.`;
  }

  // A table's numbers as columns, whichever way the state keeps them.
  const block = (sheet, state) =>
    (sheet.type === "matrix" ? state[sheet.key] : sheet.columns.map((column) => state[column.key])).map((c) => [...c]);

  function blockChanges(sheet, columns) {
    if (sheet.type === "matrix") return { [sheet.key]: columns };
    return Object.fromEntries(sheet.columns.map((column, index) => [column.key, columns[index]]));
  }

  const boundsOf = (sheet, index) => (sheet.type === "matrix" ? sheet : sheet.columns[index]);

  function sheetProblem(sheet, columns) {
    const rows = columns[0].length;
    const [fewest, most] = sheet.type === "matrix" ? [sheet.fewest_columns, sheet.most_columns] : [1, columns.length];
    const fits = (count, low, high) => low <= count && count <= high;
    if (!fits(rows, sheet.fewest_rows, sheet.most_rows) || !fits(columns.length, fewest, most)) {
      return `The table takes ${sheet.fewest_rows} to ${sheet.most_rows} ${sheet.row}s.`;
    }
    if (columns.some((column) => column.length !== rows)) return "The columns of the table differ in length.";
    const problems = columns.flatMap((column, index) => column.map((value) => cellProblem(value, boundsOf(sheet, index))));
    return problems.find(Boolean) || "";
  }

  function problemOf(controls, state) {
    for (const control of controls) {
      let problem = "";
      if (isSheet(control)) problem = sheetProblem(control, block(control, state));
      else if (control.type === "slider") problem = cellProblem(state[control.key], control);
      else if (control.type === "choice" && !(state[control.key] in control.options)) problem = "No such option.";
      if (problem) return problem;
    }
    return "";
  }

  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

  // ---------------------------------------------------------------- the page's address

  function write(name, state) {
    const text = (value) =>
      Array.isArray(value) ? value.map(text).join(Array.isArray(value[0]) ? ";" : ",") : String(value);
    const parts = Object.entries(state).map(([key, value]) => `${key}=${encodeURIComponent(text(value))}`);
    return `#lab=${name}&${parts.join("&")}`.replaceAll("%2C", ",").replaceAll("%3B", ";");
  }

  // The state that the address names for this lab: null where it names none; { problem } where it cannot be used.
  function read(hash, name, controls, start) {
    if (!hash.startsWith("#lab=")) return null;
    const given = new URLSearchParams(hash.slice(1));
    if (given.get("lab") !== name) return null;
    const state = structuredClone(start);
    for (const key of Object.keys(start)) {
      if (given.has(key)) state[key] = parse(given.get(key), start[key]);
    }
    const problem = problemOf(controls, state);
    return problem ? { problem } : { state };
  }

  function parse(text, like) {
    const numbers = (part) => (part === "" ? [] : part.split(",").map(labs.parseNumber));
    if (Array.isArray(like)) return Array.isArray(like[0]) ? text.split(";").map(numbers) : numbers(text);
    if (typeof like === "boolean") return text === "true";
    return typeof like === "number" ? labs.parseNumber(text) : text;
  }

  labs.states = { cellProblem, block, blockChanges, boundsOf, problemOf, same, write, read };
})();
