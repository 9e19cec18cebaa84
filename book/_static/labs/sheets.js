// Editable tables in the page: a row of text fields for each row of the state, with its bars beside it.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});

  function makeSheet(sheet, lab) {
    const { make } = labs;
    const isMatrix = sheet.type === "matrix";
    const heads = make("div", { class: "lab-heads" });
    const rows = make("div", {}), foot = make("div", { class: "lab-row-buttons" });
    const element = make("div", { class: "lab-sheet", role: "group", "aria-label": `Table of ${sheet.row}s` }, heads, rows, foot);
    const rowName = (index) => (sheet.rows === "letter" ? labs.letter(index) : String(index + 1));
    const columnName = (index) => (isMatrix ? `${sheet.column} ${index + 1}` : sheet.columns[index].label);
    let entries = [], places = []; // entries by column, then row

    // A table of a fixed number of rows has no buttons to change it.
    const buttons = sheet.fewest_rows === sheet.most_rows ? [] : [
      button(`Add ${sheet.row}`, grow, (columns) => columns[0].length < sheet.most_rows),
      button(`Remove ${sheet.row}`, shrink, (columns) => columns[0].length > sheet.fewest_rows),
    ];
    if (isMatrix) {
      const widen = (columns) => [...columns, columns[0].map(() => sheet.fresh)];
      buttons.push(
        button(`Add ${sheet.column}`, widen, (columns) => columns.length < sheet.most_columns),
        button(`Remove ${sheet.column}`, (columns) => columns.slice(0, -1), (columns) => columns.length > sheet.fewest_columns));
    }
    foot.append(...buttons.map((one) => one.element));
    if (!buttons.length) foot.remove();

    function grow(columns) {
      return columns.map((column, index) => [...column, labs.states.boundsOf(sheet, index).fresh]);
    }

    function shrink(columns) {
      return columns.map((column) => column.slice(0, -1));
    }

    function button(label, reshape, allowed) {
      const one = make("button", { class: "lab-button", type: "button" }, label);
      one.addEventListener("click", () => {
        const columns = labs.states.block(sheet, lab.state);
        if (allowed(columns)) lab.say(lab.change(labs.states.blockChanges(sheet, reshape(columns))));
      });
      // Not `disabled`, which would throw the keyboard's focus away.
      return { element: one, show: (columns) => one.setAttribute("aria-disabled", String(!allowed(columns))) };
    }

    function build(columns) {
      const bars = sheet.bars;
      element.className = `lab-sheet lab-columns-${columns.length}`;
      const names = [sheet.row, ...columns.map((_, index) => columnName(index))].map((text) => make("span", {}, text));
      heads.replaceChildren(...names, ...(bars ? [labs.build(labs.legend(bars.series))] : []));
      places = columns[0].map(() => (bars ? new labs.Place() : null));
      entries = columns.map(() => []);
      rows.replaceChildren(...columns[0].map((_, row) => buildRow(columns.length, row)));
    }

    function buildRow(count, row) {
      const line = make("div", { class: "lab-sheet-row" }, make("span", { class: "lab-row-name" }, rowName(row)));
      const whole = make("div", {}, line);
      for (let column = 0; column < count; column++) {
        const bounds = labs.states.boundsOf(sheet, column);
        const accept = (value) => {
          // A field that leaves the page with half a text in it still tells of a change.
          if (entries[column]?.[row] !== entry) return "";
          const columns = labs.states.block(sheet, lab.state);
          columns[column][row] = value;
          return lab.change(labs.states.blockChanges(sheet, columns));
        };
        const name = `${columnName(column)}, ${sheet.row} ${rowName(row)}`;
        const entry = labs.makeEntry({ name, bounds, accept, place: whole, step: bounds.integer ? 1 : 0.1 });
        entries[column].push(entry);
        line.append(entry.input);
      }
      return whole;
    }

    function show(state, result) {
      const columns = labs.states.block(sheet, state);
      if (!labs.states.same(entries.map((column) => column.length), columns.map((column) => column.length))) build(columns);
      columns.forEach((column, c) => column.forEach((value, r) => entries[c][r].show(labs.written(value), value)));
      if (sheet.bars) {
        labs.barRows(sheet.bars, result).forEach((tree, row) => {
          const drawn = places[row].show(tree);
          if (!drawn.isConnected && !drawn.parentNode) rows.children[row].firstChild.append(drawn);
        });
      }
      for (const one of buttons) one.show(columns);
    }

    return { element, show, forget: () => entries.flat().forEach((entry) => entry.forget()) };
  }

  Object.assign(labs, { makeSheet });
})();
