// Scales with round ends and ticks. The twin of labsrc/labs/scales.py.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});

  function makeScale(low, high, ticks, format, log) {
    const linear = (value) => (value - low) / (high - low);
    const logarithmic = (value) =>
      value <= 0 ? -10 : (Math.log10(value) - Math.log10(low)) / (Math.log10(high) - Math.log10(low));
    return Object.assign(log ? logarithmic : linear, { ticks, format });
  }

  // Where a bar's end lies between the ends of its scale; what has no value lies at zero.
  function share(value, low, high) {
    if (Number.isNaN(value)) value = 0;
    if (value === Infinity || value === -Infinity) return value > 0 ? 1 : 0;
    return labs.clip((value - low) / (high - low));
  }

  // Read from text: Math.pow differs between machines in the last digit.
  const powerOfTen = (exponent) => Number(`1e${exponent}`);

  function roundStep(span) {
    const [digits, exponent] = labs.significant(span / 4, 3);
    const mantissa = Number(digits);
    const factor = mantissa < 150 ? 1 : mantissa < 350 ? 2 : mantissa < 750 ? 5 : 10;
    return factor * powerOfTen(exponent);
  }

  function roundDomain(values, aroundZero) {
    const known = values.filter(Number.isFinite);
    if (known.length === 0) known.push(0);
    let low = Math.min(...known), high = Math.max(...known);
    if (aroundZero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    if (high - low < 1e-9 * Math.max(1, Math.abs(low), Math.abs(high))) {
      [low, high] = aroundZero ? [low, low + 1] : [low - 0.5, low + 0.5];
    }
    const step = roundStep(high - low);
    return [step * Math.floor(low / step + 1e-9), -step * Math.floor(-high / step + 1e-9)];
  }

  function roundTicks(low, high) {
    const step = roundStep(high - low);
    const first = -Math.floor(-low / step + 1e-9), last = Math.floor(high / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, index) => step * (first + index));
  }

  function logTicks(low, high) {
    const powers = Array.from({ length: 25 }, (_, index) => powerOfTen(index - 12));
    return powers.filter((power) => low * (1 - 1e-9) <= power && power <= high * (1 + 1e-9));
  }

  function tickFormat(low, high, log) {
    if (log) return ".1g";
    const exponent = labs.significant(roundStep(high - low), 1)[1];
    return `.${Math.min(Math.max(-exponent, 0), 9)}f`;
  }

  Object.assign(labs, { makeScale, share, roundDomain, roundTicks, logTicks, tickFormat });
})();
