// A drawing is a tree of [tag, attributes, children]; it is built once and afterwards only what differs is changed.
// `toHtml` writes a tree as labsrc/labs/markup.py does, which a test compares to the character.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  const SVG = new Set(["svg", "path", "line", "rect"]);

  // Children may be nested lists; empty texts and null are left out.
  function h(tag, attributes, ...children) {
    const kept = children.flat(Infinity).filter((child) => child !== "" && child !== null && child !== undefined);
    return { tag, attributes: Object.entries(attributes).filter(([, value]) => value), children: kept };
  }

  function escape(text) {
    const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
    return text.replace(/[&<>"']/g, (character) => names[character]);
  }

  function toHtml(node) {
    if (typeof node === "string") return escape(node);
    const shown = node.attributes.map(([key, value]) => ` ${key}="${escape(value)}"`).join("");
    return `<${node.tag}${shown}>${node.children.map(toHtml).join("")}</${node.tag}>`;
  }

  function build(node) {
    if (typeof node === "string") return document.createTextNode(node);
    const element = SVG.has(node.tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", node.tag)
      : document.createElement(node.tag);
    for (const [key, value] of node.attributes) element.setAttribute(key, value);
    element.append(...node.children.map(build));
    return element;
  }

  // Bring `element`, built from `old`, to `node`; returns the element that now stands there.
  function patch(element, old, node) {
    if (typeof old === "string" && typeof node === "string") {
      if (old !== node) element.data = node;
      return element;
    }
    if (old.tag !== node.tag || old.children.length !== node.children.length || !sameKeys(old, node)) {
      const fresh = build(node);
      element.replaceWith(fresh);
      return fresh;
    }
    node.attributes.forEach(([key, value], index) => {
      if (old.attributes[index][1] !== value) element.setAttribute(key, value);
    });
    let child = element.firstChild;
    node.children.forEach((next, index) => {
      child = patch(child, old.children[index], next).nextSibling;
    });
    return element;
  }

  function sameKeys(old, node) {
    const keys = (one) => one.attributes.map(([key]) => key).join();
    return keys(old) === keys(node);
  }

  // A place in the page that shows one tree at a time.
  class Place {
    show(node) {
      this.element = this.tree ? patch(this.element, this.tree, node) : build(node);
      this.tree = node;
      return this.element;
    }
  }

  const clip = (share) => Math.min(Math.max(share, 0), 1);

  function pctNumber(share) {
    const bounded = Math.min(Math.max(share, -10), 10);
    const text = (Math.abs(bounded) * 100).toFixed(2);
    return bounded < 0 && text !== "0.00" ? "-" + text : text;
  }

  const pct = (share) => pctNumber(share) + "%";

  Object.assign(labs, { h, toHtml, build, Place, clip, pctNumber, pct });
})();
