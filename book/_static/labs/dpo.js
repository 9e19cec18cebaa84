// The page's twin of labsrc/labs/dpo.py: the same state to the same result.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const LOGIT_SPANS = [2, 10, 40], RATIO_SPANS = [1, 2, 5, 10, 20], NOISE = 1e-12;
  const atLeast = (spans, size) => spans.find((span) => span >= size) ?? spans.at(-1);

  // preference.preference_log_prob(x, 0): log σ(x), whose exponential cannot overflow.
  const logSigmoid = (x) => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));

  function compute({ beta, logp_chosen, logp_rejected, logp_ref_chosen, logp_ref_rejected }) {
    const chosen = logp_chosen - logp_ref_chosen, rejected = logp_rejected - logp_ref_rejected;
    const margin = chosen - rejected, logits = beta * margin;
    const loss = -logSigmoid(logits), weight = Math.exp(logSigmoid(beta * rejected - beta * chosen));
    const span = atLeast(LOGIT_SPANS, Math.abs(logits));
    const ratioSpan = atLeast(RATIO_SPANS, Math.max(...[chosen, rejected, margin].map(Math.abs)));
    const curve = Array.from({ length: 81 }, (_, index) => (index - 40) * (span / 40));
    return {
      log_ratios: [chosen, rejected, margin],
      log_ratio_chosen: chosen,
      log_ratio_rejected: rejected,
      log_ratio_span: [-ratioSpan, ratioSpan],
      margin,
      logits,
      loss,
      no_margin_loss: -logSigmoid(0),
      weight,
      push: beta * weight,
      p_chosen: Math.exp(logp_chosen),
      p_rejected: Math.exp(logp_rejected),
      curve_logits: curve,
      curve_loss: curve.map((at) => -logSigmoid(at)),
      tangent_logits: [-span, span],
      tangent_loss: [-span, span].map((end) => loss - weight * (end - logits)),
      no_margin: Math.abs(margin) < NOISE,
      displaced: chosen < -NOISE && margin > 0,
      wrong_side: margin < 0,
    };
  }

  labs.twins.dpo = compute;
})();
