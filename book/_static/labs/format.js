// Numbers as the labs print them. The twin of labsrc/labs/formats.py, which documents the formats.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});

  const MINUS = "−", INFINITY = "∞", MISSING = "–", GROUP = "\u202f";
  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const FORMAT = /^(~?)(\+?)(?:\.(\d))?([fgd%]|letter|py|text)$/;
  const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?$/i;
  const FIELD = /\{(\w+)(?:\[(\d+)\])?(?::([^{}]+))?\}/g;
  const TOO_LONG = { f: 1e6, g: 1e6, "%": 1e6, d: 1e15 };
  const SHORTEST_G = 1e-4;
  const NOISE = 1e-12;

  function formatValue(value, format) {
    const [, noisy, plus, decimals, kind] = FORMAT.exec(format);
    const digits = Number(decimals || 0);
    if (kind === "py") return python(value);
    if (value === null || value === undefined) return MISSING;
    if (typeof value === "string") return value;
    if (Number.isNaN(value)) return MISSING;
    if (kind === "letter") return letter(value);
    if (noisy && Math.abs(value) < NOISE) value = 0;
    const text = Number.isFinite(value) ? number(Math.abs(value), kind, digits) : INFINITY;
    if (value < 0 && /[^0.%]/.test(text)) return MINUS + text;
    return plus && value > 0 ? "+" + text : text;
  }

  function fill(template, ...scopes) {
    return template.replace(FIELD, (_, key, index, format) => {
      let value = scopes.find((scope) => key in scope)[key];
      if (index !== undefined) value = value[Number(index)];
      return formatValue(value, format || "text");
    });
  }

  // What a reader typed as a number, either minus sign allowed; null where it is none.
  function parseNumber(text) {
    const plainText = text.trim().replaceAll(MINUS, "-");
    return NUMBER.test(plainText) ? Number(plainText) : null;
  }

  const letter = (index) => String.fromCharCode("a".charCodeAt(0) + Math.trunc(index));

  // The leading digits of a number > 0, and the exponent of the first one.
  function significant(size, digits) {
    const [mantissa, exponent] = size.toExponential(digits - 1).split("e");
    return [mantissa.replace(".", ""), Number(exponent)];
  }

  function number(size, kind, digits) {
    if (size !== 0 && (size >= TOO_LONG[kind] || vanishes(size, kind, digits))) {
      return scientific(size, kind === "g" ? Math.max(digits, 1) : 2);
    }
    if (kind === "f") return size.toFixed(digits);
    if (kind === "%") return (100 * size).toFixed(digits) + "%";
    if (kind === "d") return String(Math.floor(size + 0.5)).replace(/(\d)(?=(\d{3})+$)/g, "$1" + GROUP);
    return size === 0 ? "0" : plain(...significant(size, Math.max(digits, 1)));
  }

  function vanishes(size, kind, digits) {
    const smallest = { f: Number(`5e-${digits + 1}`), "%": Number(`5e-${digits + 3}`), g: SHORTEST_G, d: 0 };
    return size < smallest[kind];
  }

  function plain(digits, exponent) {
    const whole = exponent < 0 ? "0" : digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
    let part = exponent < 0 ? "0".repeat(-exponent - 1) + digits : digits.slice(exponent + 1);
    part = part.replace(/0+$/, "");
    return part ? `${whole}.${part}` : whole;
  }

  function scientific(size, digits) {
    const [shown, exponent] = significant(size, digits);
    const raised = String(exponent).replace(/[-\d]/g, (c) => (c === "-" ? "⁻" : SUPERSCRIPTS[Number(c)]));
    return `${plain(shown, 0)}×10${raised}`;
  }

  function python(value) {
    if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
    if (value === null || value === undefined) return "None";
    if (typeof value === "boolean") return value ? "True" : "False";
    if (typeof value === "string") return JSON.stringify(value);
    return String(value);
  }

  Object.assign(labs, { formatValue, fill, parseNumber, letter, significant });
})();
