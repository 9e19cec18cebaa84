// Sliders, switches and options in the page. Each control is { element, show(state, result), forget() }.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  const make = (tag, attributes, ...children) => {
    const element = labs.build(labs.h(tag, attributes));
    element.append(...children);
    return element;
  };
  let count = 0;
  const freshId = (word) => `lab-${word}-${++count}`;
  const PATIENCE = 700; // ms a reader may pause in mid-number before it is called wrong

  // The message under a control: why `field` was refused. Said once, however often it is asked for.
  function makeMessage(field, place) {
    let message = null;
    return {
      get stands() {
        return message !== null;
      },
      mark(problem) {
        const text = problem ? `${problem} The last good value stays in use.` : "";
        if (text === (message?.textContent ?? "")) return;
        message?.remove();
        message = problem ? make("p", { class: "lab-error", id: freshId("error"), role: "alert" }, text) : null;
        if (message) {
          place.append(message);
          field.setAttribute("aria-invalid", "true");
          field.setAttribute("aria-describedby", message.id);
        } else {
          field.removeAttribute("aria-invalid");
          field.removeAttribute("aria-describedby");
        }
      },
    };
  }

  // A text field for one number. `accept(number)` returns why it is refused, or an empty text; `place` takes the message.
  function makeEntry({ name, bounds, accept, place, step }) {
    const negative = bounds.minimum < 0;
    const input = make("input", {
      // The decimal keyboard of some phones has no minus sign.
      class: "lab-cell", type: "text", inputmode: negative ? "" : "decimal", "aria-label": name,
      autocomplete: "off", spellcheck: "false", enterkeyhint: "done",
    });
    const message = makeMessage(input, place);
    let shown = "", waiting = 0;

    function mark(problem) {
      clearTimeout(waiting);
      message.mark(problem);
    }

    function take(patient) {
      const value = labs.parseNumber(input.value);
      const problem = labs.states.cellProblem(value, bounds) || accept(value);
      clearTimeout(waiting);
      if (!problem || !patient || message.stands) mark(problem);
      else waiting = setTimeout(() => mark(problem), PATIENCE);
    }

    function nudge(event) {
      const way = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      const value = labs.parseNumber(input.value);
      if (event.key === "Enter") take(false);
      if (!way || value === null) return;
      event.preventDefault();
      const moved = Number((value + way * step * (event.shiftKey ? 10 : 1)).toPrecision(10));
      input.value = written(Math.min(Math.max(moved, bounds.minimum), bounds.maximum));
      take(false);
    }

    input.addEventListener("input", () => take(true));
    input.addEventListener("change", () => take(false));
    input.addEventListener("blur", () => { if (!message.stands) input.value = shown; });
    input.addEventListener("keydown", nudge);
    return {
      input,
      // A refused text stays until it is mended, and a number half typed is not rewritten.
      show(text, value) {
        shown = text;
        const typing = document.activeElement === input && labs.parseNumber(input.value) === value;
        if (!message.stands && !typing) input.value = text;
      },
      forget() {
        mark("");
        input.value = shown;
      },
      mark,
    };
  }

  const written = (value) => String(value).replace("-", "−");

  function makeSlider(slider, lab) {
    const position = (value) => (slider.log ? Math.log10(value) : value);
    const at = (place) => {
      if (!slider.log) return Number(Number(place).toPrecision(10));
      return Math.min(Math.max(Number((10 ** place).toPrecision(3)), slider.minimum), slider.maximum);
    };
    const low = position(slider.minimum), high = position(slider.maximum);
    const step = slider.log ? 0.01 : slider.step;
    const id = freshId("slider");
    const range = make("input", {
      class: "lab-range", type: "range", id, min: String(low), max: String(high), step: String(step),
      "aria-label": slider.meaning,
    });
    const element = make("div", { class: "lab-control" });
    const accept = (value) => lab.change({ [slider.key]: value });
    const entry = makeEntry({ name: `${slider.meaning}, typed`, bounds: slider, accept, place: element, step: slider.step });
    entry.input.classList.add("lab-reading");
    const label = make("label", { class: "lab-label", for: id }, slider.label);
    const unit = slider.unit ? [make("span", { class: "lab-unit" }, slider.unit)] : [];
    element.append(make("div", { class: "lab-slider" }, label, range, entry.input, ...unit));
    let refused = false; // where the hand has taken the handle to
    range.addEventListener("input", () => {
      entry.forget();
      const problem = lab.change({ [slider.key]: at(Number(range.value)) });
      refused = Boolean(problem);
      entry.mark(problem);
    });
    // Let go where it was refused, the handle returns to the value that holds.
    range.addEventListener("change", () => {
      if (refused) range.value = String(position(lab.state[slider.key]));
    });
    return {
      element,
      show(state) {
        const value = state[slider.key], here = position(value), text = labs.formatValue(value, slider.format);
        // Where the handle stands already, writing a rounded place back would fight the hand.
        if (Math.abs(Number(range.value) - here) > 0.501 * step) range.value = String(here);
        range.style.setProperty("--lab-done", labs.pct((here - low) / (high - low)));
        if (refused) entry.forget();
        refused = false;
        range.setAttribute("aria-valuetext", [text, slider.unit].filter(Boolean).join(" "));
        entry.show(text, value);
      },
      forget: entry.forget,
    };
  }

  // `change` asks for a setting; where it is refused the reason stands below and `undo` shows what holds.
  function makeSetting(field, element, undo) {
    const message = makeMessage(field, element);
    return {
      element,
      change(problem) {
        message.mark(problem);
        if (problem) undo();
      },
      forget: () => message.mark(""),
    };
  }

  function makeToggle(toggle, lab) {
    const box = make("input", { type: "checkbox" });
    const label = make("label", { class: "lab-setting" }, box, make("span", { class: "lab-label" }, toggle.label));
    const show = (state) => { box.checked = state[toggle.key]; };
    const setting = makeSetting(box, make("div", {}, label), () => show(lab.state));
    box.addEventListener("change", () => setting.change(lab.change({ [toggle.key]: box.checked })));
    return { element: setting.element, forget: setting.forget, show(state) { setting.forget(); show(state); } };
  }

  function makeChoice(choice, lab) {
    const name = freshId("choice");
    const inputs = Object.keys(choice.options).map((value) => make("input", { type: "radio", name, value }));
    const labels = inputs.map((input) => make("label", {}, input, make("span", {}, choice.options[input.value])));
    const options = make("span", { class: "lab-options", role: "radiogroup", "aria-label": choice.label }, ...labels);
    const label = make("span", { class: "lab-label", "aria-hidden": "true" }, choice.label);
    const show = (state) => inputs.forEach((input) => { input.checked = input.value === state[choice.key]; });
    const setting = makeSetting(options, make("div", {}, make("div", { class: "lab-setting" }, label, options)), () => show(lab.state));
    for (const input of inputs) input.addEventListener("change", () => setting.change(lab.change({ [choice.key]: input.value })));
    return { element: setting.element, forget: setting.forget, show(state) { setting.forget(); show(state); } };
  }

  function makeControl(control, lab) {
    const kinds = { slider: makeSlider, toggle: makeToggle, choice: makeChoice, table: labs.makeSheet, matrix: labs.makeSheet };
    return kinds[control.type](control, lab);
  }

  Object.assign(labs, { make, makeEntry, makeControl, written });
})();
