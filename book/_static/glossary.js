// A glossary term shows its definition on hover and on keyboard focus; Escape puts it away. The definitions lie in the
// page, so this works from disk. Without the script the link still leads to the glossary.
(() => {
  "use strict";

  const kept = document.getElementById("glossary-definitions");
  if (!kept) return;
  const words = new Map([...kept.content.children].map((one) => [one.dataset.term, one.textContent]));

  const tip = document.createElement("div");
  tip.id = "glossary-tip";
  tip.className = "glossary-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);

  let owner = null;
  let leaving = 0;

  function show(link) {
    clearTimeout(leaving);
    owner?.removeAttribute("aria-describedby");
    owner = link;
    tip.textContent = words.get(link.hash.slice(1));
    link.setAttribute("aria-describedby", tip.id);
    tip.hidden = false;
    const box = link.getClientRects()[0];
    const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const below = box.bottom + tip.offsetHeight + 8 < window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below ? box.bottom + 4 : Math.max(8, box.top - tip.offsetHeight - 4)}px`;
  }

  function hide() {
    clearTimeout(leaving);
    owner?.removeAttribute("aria-describedby");
    owner = null;
    tip.hidden = true;
  }

  // The pointer may move from the term onto its definition without losing it.
  const leave = () => {
    clearTimeout(leaving);
    leaving = setTimeout(hide, 150);
  };

  for (const link of document.querySelectorAll("a[href*='#term-']")) {
    if (!words.has(link.hash.slice(1))) continue;
    link.classList.add("glossary-link");
    link.addEventListener("mouseenter", () => show(link));
    link.addEventListener("focus", () => show(link));
    link.addEventListener("mouseleave", leave);
    link.addEventListener("blur", hide);
  }
  tip.addEventListener("mouseenter", () => clearTimeout(leaving));
  tip.addEventListener("mouseleave", leave);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("scroll", hide, { passive: true });
})();
