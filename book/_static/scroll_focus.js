// What scrolls sideways can be reached with the Tab key and scrolled with the arrows: wide formulas, and the labs'
// tables on a narrow screen. The theme sees to code and to other tables. A lab draws its panels anew, so it is looked
// at again whenever it has.
(() => {
  "use strict";

  const boxes = "div.math, .lab-scroll";

  function reach(root) {
    for (const box of root.querySelectorAll(boxes)) {
      if (box.scrollWidth > box.clientWidth && box.tabIndex < 0) box.tabIndex = 0;
    }
  }

  let waiting = 0;
  const later = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => reach(document));
  };

  const watch = new MutationObserver(later);
  for (const lab of document.querySelectorAll("align-lab")) watch.observe(lab, { childList: true, subtree: true });
  addEventListener("resize", later);
  // A formula has its width only once MathJax has set it.
  addEventListener("load", () => Promise.resolve(window.MathJax?.startup?.promise).then(later, later));
  later();
})();
