// A small good job, for tests to change.
#pragma once

#include <string>
#include <vector>

#include "config/job.hpp"

namespace switchyard::config {

inline std::string good_job() {
  return R"(seed = 3
[model]
hidden_size = 64
layers = 4
heads = 8
kv_heads = 4
ffn_size = 172
vocab_size = 131
[batch]
tokens = 65536
context = 4096
[[bucket]]
max_length = 4096
strategy = "1,4,1"
[[bucket]]
max_length = 512
strategy = "4,1,1"
[run]
steps = 10
)";
}

inline Job good(const std::vector<std::string>& sets = {}) { return job_from_toml(good_job(), "job.toml", sets); }

}  // namespace switchyard::config
