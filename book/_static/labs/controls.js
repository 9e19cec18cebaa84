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

  // A text field for one number. `accept(number)` returns why it is refused, or an empty text; `place` takes the message.
  function makeEntry({ name, bounds, accept, place, step }) {
    const negative = bounds.minimum < 0;
    const input = make("input", {
      // The decimal keyboard of some phones has no minus sign.
      class: "lab-cell", type: "text", inputmode: negative ? "" : "decimal", "aria-label": name,
      autocomplete: "off", spellcheck: "false", enterkeyhint: "done",
    });
    let shown = "", message = null, waiting = 0;

    function mark(problem) {
      clearTimeout(waiting);
      if (message) message.remove();
      message = problem ? make("p", { class: "lab-error", id: freshId("error"), role: "alert" }) : null;
      if (message) {
        message.textContent = `${problem} The last good value stays in use.`;
        place.append(message);
        input.setAttribute("aria-invalid", "true");
        input.setAttribute("aria-describedby", message.id);
      } else {
        input.removeAttribute("aria-invalid");
        input.removeAttribute("aria-describedby");
      }
    }

    function take(patient) {
      const value = labs.parseNumber(input.value);
      const problem = labs.states.cellProblem(value, bounds) || accept(value);
      clearTimeout(waiting);
      if (!problem || !patient || message) mark(problem);
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
    input.addEventListener("blur", () => { if (!message) input.value = shown; });
    input.addEventListener("keydown", nudge);
    return {
      input,
      // A refused text stays until it is mended, and a number half typed is not rewritten.
      show(text, value) {
        shown = text;
        const typing = document.activeElement === input && labs.parseNumber(input.value) === value;
        if (!message && !typing) input.value = text;
      },
      forget() {
        mark("");
        input.value = shown;
      },
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
    range.addEventListener("input", () => {
      entry.forget();
      lab.change({ [slider.key]: at(Number(range.value)) });
    });
    return {
      element,
      show(state) {
        const value = state[slider.key], here = position(value), text = labs.formatValue(value, slider.format);
        // Where the handle stands already, writing a rounded place back would fight the hand.
        if (Math.abs(Number(range.value) - here) > 0.501 * step) range.value = String(here);
        range.style.setProperty("--lab-done", labs.pct((here - low) / (high - low)));
        range.setAttribute("aria-valuetext", [text, slider.unit].filter(Boolean).join(" "));
        entry.show(text, value);
      },
      forget: entry.forget,
    };
  }

  function makeToggle(toggle, lab) {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => lab.change({ [toggle.key]: box.checked }));
    const element = make("label", { class: "lab-setting" }, box, make("span", { class: "lab-label" }, toggle.label));
    return { element, show: (state) => { box.checked = state[toggle.key]; }, forget() {} };
  }

  function makeChoice(choice, lab) {
    const name = freshId("choice");
    const inputs = Object.keys(choice.options).map((value) => make("input", { type: "radio", name, value }));
    const labels = inputs.map((input) => make("label", {}, input, make("span", {}, choice.options[input.value])));
    for (const input of inputs) input.addEventListener("change", () => lab.change({ [choice.key]: input.value }));
    const options = make("span", { class: "lab-options", role: "radiogroup", "aria-label": choice.label }, ...labels);
    const label = make("span", { class: "lab-label", "aria-hidden": "true" }, choice.label);
    return {
      element: make("div", { class: "lab-setting" }, label, options),
      show: (state) => inputs.forEach((input) => { input.checked = input.value === state[choice.key]; }),
      forget() {},
    };
  }

  function makeControl(control, lab) {
    const kinds = { slider: makeSlider, toggle: makeToggle, choice: makeChoice, table: labs.makeSheet, matrix: labs.makeSheet };
    return kinds[control.type](control, lab);
  }

  Object.assign(labs, { make, makeEntry, makeControl, written });
})();
