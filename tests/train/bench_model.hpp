// The model that tests of the benchmarks run.
#pragma once

#include <string>

#include "../message_of.hpp"
#include "config/model.hpp"

namespace switchyard::train {

/// 2 layers, hidden 32, 4 heads of 8, 2 key/value heads, ffn 48, vocabulary 64, untied.
inline config::ModelConfig bench_model() {
  config::ModelConfig model;
  model.hidden_size = 32;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn_size = 48;
  model.vocab_size = 64;
  return model;
}

}  // namespace switchyard::train
