// Sets a page's formulas a few at a time, those on the screen first: while MathJax sets them all at once, neither a
// slider nor the scroll bar answers. Every formula is in an element of the class "math"; the last step looks for others.
(() => {
  "use strict";
  const STEP = 25; // formulas set in one go
  const config = (window.MathJax = window.MathJax || {});
  const pause = () => new Promise((resolve) => setTimeout(resolve));
  const distance = (element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return Math.max(0, top - innerHeight, -bottom);
  };

  async function setInSteps() {
    const places = [...document.querySelectorAll(".math")].map((element) => ({ element, away: distance(element) }));
    const nearest = places.sort((one, other) => one.away - other.away).map(({ element }) => element);
    for (let done = 0; done < nearest.length; done += STEP) {
      await MathJax.typesetPromise(nearest.slice(done, done + STEP));
      await pause();
    }
    return MathJax.startup.defaultPageReady();
  }

  config.startup = {
    ...config.startup,
    ready: () => pause().then(() => MathJax.startup.defaultReady()),
    pageReady: setInSteps,
  };
})();
