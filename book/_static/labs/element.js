// <align-lab>: wakes the figure drawn in advance. It carries its description and state as JSON in `data-lab`; the
// function that computes is the twin of that name. Everything else lives in the other scripts of this folder, which
// may be loaded in any order.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  const ALOUD_AFTER = 600; // ms without a change before a screen reader is told

  class LiveLab {
    constructor(home, { lab, state }, compute) {
      Object.assign(this, { home, lab, compute, start: state, state, result: compute(state) });
      this.panels = new labs.Place();
      this.controls = lab.controls.map((control) => labs.makeControl(control, this));
      const twins = [...document.querySelectorAll(`align-lab[data-name="${lab.name}"]`)];
      this.address = lab.name + (twins.indexOf(home) > 0 ? `.${twins.indexOf(home) + 1}` : "");
      this.layOut();
      this.follow(location.hash);
      window.addEventListener("hashchange", () => this.follow(location.hash));
    }

    layOut() {
      const { make } = labs;
      const button = (label, press) => {
        const one = make("button", { class: "lab-button", type: "button" }, label);
        one.addEventListener("click", () => press(one));
        return one;
      };
      this.words = make("p", { class: "lab-sentence" });
      this.aloud = make("p", { class: "lab-aloud", role: "status", "aria-live": "polite" });
      this.status = make("span", { class: "lab-status", role: "status" });
      this.note = make("p", { class: "lab-preset-note", role: "status" });
      this.presets = (this.lab.presets || []).map((preset) => ({
        preset,
        element: button(preset.label, () => this.press(preset.state, preset.note)),
      }));
      const foot = [
        button("Reset", () => this.reset()),
        button("Copy link", () => this.copyLink()),
        button("Copy as Python", () => this.copy(labs.fill(this.lab.python, this.state, this.result), "Python copied.")),
      ];
      this.foot = make("div", { class: "lab-foot" }, ...foot, this.status);
      // Title, lead and prompt are those of the figure drawn in advance.
      const head = [...this.home.querySelectorAll(":scope > :is(.lab-title, .lab-lead, .lab-prompt)")];
      const presets = make("div", { class: "lab-presets", role: "group", "aria-label": "Settings to try" },
        ...this.presets.map((one) => one.element));
      const controls = make("div", { class: "lab-controls" }, ...this.controls.map((control) => control.element));
      this.show();
      this.home.replaceChildren(...head, ...(this.presets.length ? [presets, this.note] : []), controls,
        this.panels.element, this.words, this.aloud, this.foot);
      this.home.setAttribute("data-live", "");
    }

    // Try the changes: the new state is shown and "" returned, or the old one stays and the reason why is returned.
    change(changes) {
      const state = { ...this.state, ...changes };
      const problem = labs.states.problemOf(this.lab.controls, state);
      if (problem) return problem;
      try {
        this.result = this.compute(state);
      } catch (error) {
        return `${error.message}.`;
      }
      this.state = state;
      this.touched = true;
      this.show();
      return "";
    }

    show() {
      for (const control of this.controls) control.show(this.state, this.result);
      this.panels.show(labs.h("div", { class: "lab-panels" },
        (this.lab.panels || []).map((panel) => labs.draw(panel, this.state, this.result))));
      const words = labs.sentence(this.lab.sentence, this.state, this.result);
      if (this.words.textContent !== words) this.words.textContent = words;
      for (const { preset, element } of this.presets) {
        const there = labs.states.same({ ...this.start, ...preset.state }, this.state);
        element.setAttribute("aria-pressed", String(there));
      }
      clearTimeout(this.telling);
      if (this.touched) this.telling = setTimeout(() => { this.aloud.textContent = words; }, ALOUD_AFTER);
    }

    // Go to a named setting: what it does not name returns to where the lab started.
    press(state, note) {
      for (const control of this.controls) control.forget();
      this.say(this.change({ ...structuredClone(this.start), ...structuredClone(state) }));
      this.note.textContent = note || "";
    }

    reset() {
      this.press({}, "");
      if (labs.states.read(location.hash, this.address, this.lab.controls, this.start)) {
        history.replaceState(null, "", location.pathname + location.search);
      }
    }

    // Take the state that the page's address names, if it names this lab.
    follow(hash) {
      const found = labs.states.read(hash, this.address, this.lab.controls, this.start);
      if (!found) return;
      const problem = found.problem || this.change(found.state);
      this.say(problem ? `The setting in this page's address cannot be used. ${problem}` : "");
      this.home.scrollIntoView({ block: "center" });
    }

    copyLink() {
      const hash = labs.states.write(this.address, this.state);
      history.replaceState(null, "", hash);
      this.copy(location.href, "Link copied.");
    }

    async copy(text, done) {
      this.foot.querySelector(".lab-source")?.remove();
      try {
        await navigator.clipboard.writeText(text);
        this.say(done);
      } catch {
        // No access to the clipboard: show the text, selected, for the reader to copy.
        const field = labs.make("textarea", { class: "lab-source", readonly: "readonly", rows: "3", "aria-label": "Text to copy" });
        field.value = text;
        this.foot.append(field);
        field.select();
        this.say("Copy the text below.");
      }
    }

    say(text) {
      this.status.textContent = text;
    }
  }

  class AlignLab extends HTMLElement {
    connectedCallback() {
      if (this.live || !this.dataset.lab) return;
      const wake = () => {
        const compute = labs.twins?.[this.dataset.name];
        const ready = compute && labs.makeControl && labs.makeSheet && labs.draw && labs.curves && labs.states && labs.formatValue;
        if (this.live || !ready) return;
        this.live = new LiveLab(this, JSON.parse(this.dataset.lab), compute);
      };
      wake();
      // A script of the lab may still be on its way.
      if (!this.live) for (const event of ["DOMContentLoaded", "load"]) window.addEventListener(event, wake, { once: true });
    }
  }

  if (!customElements.get("align-lab")) customElements.define("align-lab", AlignLab);
})();
