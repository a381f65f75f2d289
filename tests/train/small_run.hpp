// A small job on a corpus written by the test.
#pragma once

#include <string>
#include <vector>

#include "../data/index_file.hpp"
#include "config/job.hpp"
#include "job_device.hpp"

namespace switchyard::train {

/// Documents of 2 to 30 tokens below 131; LLaMA of 2 layers, fp64.
inline config::Job small_job(const std::string& data, const std::string& out,
                             const std::vector<std::string>& sets = {}) {
  const std::string text = R"(seed = 3
[model]
hidden_size = 32
layers = 2
heads = 4
kv_heads = 2
ffn_size = 48
vocab_size = 131
[data]
path = ")" + data + R"("
[batch]
sequences = 6
context = 32
[[bucket]]
max_length = 32
strategy = "1,2,1"
[[bucket]]
max_length = 16
strategy = "2,1,1"
[optimizer]
lr = 1e-2
schedule = "constant"
[run]
steps = 4
ranks = 2
threads = 1
precision = "fp64"
checkpoint_every = 2
keep_checkpoints = 0
out = ")" + out + "\"\n";
  std::vector<std::string> all = {};
  if (job_device() == cluster::DeviceType::cuda) all = {"run.device=\"cuda\""};
  all.insert(all.end(), sets.begin(), sets.end());
  return config::job_from_toml(text, "job.toml", all);
}

inline void write_small_corpus(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  data::write_corpus(folder, {30, 4, 11, 25, 7, 2, 19, 16, 29, 5});
}

}  // namespace switchyard::train
