// Any text as a strategy file: a UserError, or a strategy that prints to a file which reads back the same. A job with
// it is refused with a UserError, or good.
#include "config/strategy.hpp"

#include <cstdint>

#include "base/errors.hpp"
#include "config/errors.hpp"
#include "config/job.hpp"
#include "config/job_draft.hpp"
#include "config/job_keys.hpp"

namespace {

using namespace switchyard;

config::JobDraft job_with(const std::string& strategy) {
  config::JobDraft draft;
  draft.job.model.config = {.hidden_size = 8, .layers = 2, .heads = 2, .ffn_size = 8, .vocab_size = 8};
  draft.job.batch.sequences = 1;
  draft.job.batch.context = 8;
  draft.job.run.steps = 1;
  draft.buckets = {{.max_length = 8, .text = strategy}};
  for (const char* key : {"model.hidden_size", "model.layers", "model.heads", "model.ffn_size", "model.vocab_size",
                          "batch.sequences", "batch.context", "run.steps", "bucket.0.max_length", "bucket.0.strategy"})
    draft.given[key] = "fuzz";
  return draft;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto strategy = config::strategy_from_json(text, "fuzz");
    std::string printed;
    try {
      printed = config::to_json(strategy);
      check(config::strategy_from_json(printed, "printed") == strategy, "{} reads back as another strategy", printed);
    } catch (const UserError& error) {
      throw InternalError(error.what());
    }
    config::Errors errors;
    config::job_of(job_with(text), errors);
  } catch (const UserError&) {
  }
  return 0;
}
