// The page's twin of labsrc/labs/ledger.py, and of the arithmetic of labsrc/ledger.py.
(() => {
  "use strict";
  const labs = (window.alignLabs = window.alignLabs || {});
  labs.twins = labs.twins || {};

  const GIB = 2 ** 30;
  const WEIGHT_BYTES = { bf16: 2, mixed: 2, fp32: 4 };
  const GRADIENT_BYTES = { bf16: 2, mixed: 4, fp32: 4 };
  const MOMENT_BYTES = { adam: 8, adam8: 2, sgd: 0 };
  const NOTHING = { weights: 0, gradients: 0, optimizer: 0 };

  function workOf(state) {
    const parameters = state.billions * 1e9, share = state.adapter_percent / 100, critic = state.critic * parameters;
    const weight = WEIGHT_BYTES[state.precision];
    return {
      parameters, critic,
      reward: state.reward_model * parameters,
      adapters: state.adapters ? share * parameters : null,
      criticAdapters: state.adapters && critic ? share * critic : null,
      weight,
      gradient: GRADIENT_BYTES[state.precision],
      optimizer: (weight >= 4 ? 0 : 4) + MOMENT_BYTES[state.optimizer],
    };
  }

  // ledger.frozen_state and ledger.trainable_state.
  const frozen = (work, parameters) => ({ weights: parameters * work.weight, gradients: 0, optimizer: 0 });

  function trainable(work, parameters, adapters) {
    const trained = adapters ?? parameters;
    return {
      weights: (parameters + (adapters ?? 0)) * work.weight,
      gradients: trained * work.gradient,
      optimizer: trained * work.optimizer,
    };
  }

  const total = (network) => network.weights + network.gradients + network.optimizer;
  const trainingFlops = (parameters, adapters) => (adapters === null ? 6 * parameters : 4 * parameters + 6 * adapters);

  // ledger.ppo_ledger, and grpo_ledger with `critic` 0; one prompt.
  function online(state, work, completions, critic) {
    const tokens = completions * (state.prompt_tokens + state.completion_tokens);
    const generated = completions * state.completion_tokens, trained = state.inner_updates * tokens;
    const passes = [work.parameters, state.reference ? work.parameters : 0, critic, work.reward];
    const perToken = trainingFlops(work.parameters, work.adapters) + (critic ? trainingFlops(critic, work.criticAdapters) : 0);
    return {
      policy: trainable(work, work.parameters, work.adapters),
      critic: critic ? trainable(work, critic, work.criticAdapters) : NOTHING,
      reference: frozen(work, state.reference && work.adapters === null ? work.parameters : 0),
      reward: frozen(work, work.reward),
      generated, trained,
      scored: tokens * passes.filter(Boolean).length,
      rewards: completions,
      flops: 2 * generated * work.parameters + 2 * tokens * labs.maths.sum(passes) + trained * perToken,
    };
  }

  // ledger.dpo_ledger of one pair.
  function dpo(state, work) {
    const tokens = 2 * (state.prompt_tokens + state.completion_tokens), scored = state.reference ? tokens : 0;
    const trained = state.inner_updates * tokens;
    return {
      policy: trainable(work, work.parameters, work.adapters),
      critic: NOTHING,
      reference: frozen(work, state.reference && work.adapters === null ? work.parameters : 0),
      reward: NOTHING,
      generated: 0, trained, scored, rewards: 0,
      flops: trained * trainingFlops(work.parameters, work.adapters) + 2 * scored * work.parameters,
    };
  }

  const memoryOf = (one) => total(one.policy) + total(one.critic) + total(one.reference) + total(one.reward);

  function compute(state) {
    const work = workOf(state);
    const ppo = online(state, work, state.ppo_completions, work.critic), grpo = online(state, work, state.group_size, 0);
    const all = [ppo, grpo, dpo(state, work)], each = (read) => all.map(read);
    const memory = each((one) => memoryOf(one) / 1e9), policy = total(ppo.policy);
    return {
      weights_gb: each((one) => one.policy.weights / 1e9),
      gradients_gb: each((one) => one.policy.gradients / 1e9),
      optimizer_gb: each((one) => one.policy.optimizer / 1e9),
      critic_gb: each((one) => total(one.critic) / 1e9),
      reference_gb: each((one) => total(one.reference) / 1e9),
      reward_model_gb: each((one) => total(one.reward) / 1e9),
      generated: each((one) => one.generated / 1e3),
      scored: each((one) => one.scored / 1e3),
      trained: each((one) => one.trained / 1e3),
      memory,
      gib: each((one) => memoryOf(one) / GIB),
      flops: each((one) => one.flops / 1e15),
      rewards: each((one) => one.rewards),
      policy_gb: policy / 1e9,
      policy_gib: policy / GIB,
      bytes_a_parameter: policy / work.parameters,
      memory_ratio: memoryOf(ppo) / memoryOf(grpo),
      flops_ratio: ppo.flops / grpo.flops,
      saved: memory[0] - memory[1],
      flops_to_dpo: grpo.flops / all[2].flops,
      grpo_dearer: grpo.flops > ppo.flops,
      same: state.ppo_completions === state.group_size && work.critic === 0,
      parameters: work.parameters,
      critic_parameters: work.critic,
      reward_parameters: work.reward,
      adapter_parameters: work.adapters,
      critic_adapter_parameters: work.criticAdapters,
      weight_bytes: work.weight,
      gradient_bytes: work.gradient,
      optimizer_bytes: work.optimizer,
      precomputed: !state.reference,
    };
  }

  labs.twins.ledger = compute;
})();
