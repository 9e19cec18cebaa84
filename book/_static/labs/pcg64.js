// Uniform numbers to the last bit as `numpy.random.default_rng(seed).random(count)` gives them: NumPy's SeedSequence
// spreads the seed over 256 bits, the generator is PCG64 (O'Neill 2014, the variant XSL-RR 128/64).
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});

  const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;
  const MASK_64 = (1n << 64n) - 1n;
  const uint128 = (value) => BigInt.asUintN(128, value);

  // SeedSequence's hash: a multiplier that changes with every use.
  function makeHash(constant, factor) {
    return (value) => {
      let mixed = value ^ constant;
      constant = Math.imul(constant, factor);
      mixed = Math.imul(mixed, constant);
      return mixed ^ (mixed >>> 16);
    };
  }

  function mix(x, y) {
    const value = Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y);
    return value ^ (value >>> 16);
  }

  // SeedSequence(seed).generate_state(8), for a seed below 2^32.
  function seedWords(seed) {
    const hash = makeHash(0x43b0d7e5, 0x931e8875), pool = [seed, 0, 0, 0].map(hash);
    for (let source = 0; source < 4; source++) {
      for (let target = 0; target < 4; target++) {
        if (source !== target) pool[target] = mix(pool[target], hash(pool[source]));
      }
    }
    const spread = makeHash(0x8b51f9dd, 0x58f38ded);
    return Array.from({ length: 8 }, (_, index) => spread(pool[index % 4]) >>> 0);
  }

  function uniforms(seed, count) {
    const words = seedWords(seed).map(BigInt);
    const [high, low, sequenceHigh, sequenceLow] = [0, 2, 4, 6].map((at) => words[at] | (words[at + 1] << 32n));
    const increment = uint128((((sequenceHigh << 64n) | sequenceLow) << 1n) | 1n);
    const next = (state) => uint128(state * MULTIPLIER + increment);
    let state = next(uint128(increment + ((high << 64n) | low)));
    const drawn = new Float64Array(count);
    for (let index = 0; index < count; index++) {
      state = next(state);
      const folded = (state >> 64n) ^ (state & MASK_64), turn = state >> 122n;
      const word = ((folded >> turn) | (folded << (64n - turn))) & MASK_64;
      drawn[index] = Number(word >> 11n) / 2 ** 53;
    }
    return drawn;
  }

  labs.uniforms = uniforms;
})();
