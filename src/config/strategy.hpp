// A strategy: which ranks compute which layers, and how each parameter is split among them. Plain values; a strategy is
// also a JSON file that the program prints and a person may edit (docs/strategy-format.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace switchyard::config {

/// One pipeline stage of a group: layers [first_layer, end_layer) of the transformer. The embedding goes with the first
/// stage, final norm and head with the last. ranks: dp * tp of them, data outermost, tensor fastest.
struct Stage {
  std::vector<int> ranks;
  int tp = 1;
  int first_layer = 0, end_layer = 0;
  bool operator==(const Stage&) const = default;
};

/// `dp` equal pipelines (lanes). Unequal pipelines are several groups. Lane d of a stage: ranks [d*tp, (d+1)*tp).
struct Group {
  int dp = 1;
  std::vector<Stage> stages;
  bool operator==(const Group&) const = default;
};

/// How a parameter is cut by tensor parallelism, when not as usual: dims in order, `ways` parts each. The product of the
/// ways divides tp (the rest are copies). Empty cuts: replicated.
struct Cut {
  int dim = 0, ways = 1;
  bool operator==(const Cut&) const = default;
};
struct ParamSplit {
  std::string parameter;  // Hugging Face name; '*' matches any run of characters
  std::vector<Cut> cuts;
  bool operator==(const ParamSplit&) const = default;
};

enum class Recompute { none, selective, full };
enum class ScheduleKind { gpipe, one_f_one_b };

struct Strategy {
  std::string name;  // as the user wrote it, e.g. "1,4,2"
  std::vector<Group> groups;
  std::vector<ParamSplit> splits;
  Recompute recompute = Recompute::none;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  bool sequence_parallel = true;   // activations between blocks cut on tokens by tp
  i64 micro_batch_tokens = 0;      // most tokens of a micro-batch; 0: the job's bucket length
  int lanes() const;               // pipelines over all groups
  std::vector<int> ranks() const;  // used ranks, ascending
  bool operator==(const Strategy&) const = default;
};

/// Data, tensor and pipeline parallel degree, each at least 1.
struct Degrees {
  i64 dp = 1, tp = 1, pp = 1;
  bool operator==(const Degrees&) const = default;
};
/// "1,4,2" (dp,tp,pp; blanks allowed). UserError if it is anything else.
Degrees degrees_from_spec(std::string_view spec);
/// "dp,tp,pp" on ranks 0 ... dp*tp*pp-1 with `layers` split as evenly as possible: where pp does not divide them, the first
/// layers % pp stages get one more, as the last stage also holds the head. Tensor fastest, then data, then pipeline.
/// UserError unless dp*tp*pp <= ranks, pp <= layers, and all positive.
Strategy strategy_from_spec(std::string_view spec, int ranks, i64 layers);
/// Checks against a model and a rank count; UserError naming strategy, stage and remedy: ranks out of range or used twice,
/// layers not covered once in order, ranks != dp*tp, tp above kv_heads and no multiple of it, parts of a split parameter that
/// divide no stage's tp.
struct ModelConfig;
void validate(const Strategy& strategy, const ModelConfig& model, int ranks);

/// A page of JSON with a line per stage; docs/strategy-format.md explains it.
std::string to_json(const Strategy& strategy);
/// The strategy in a JSON text of any content and size: memory stays proportional to it. origin: its file name in messages.
/// UserError names the JSON path, and the nearest known key for an unknown one. Whether it fits a model: validate.
Strategy strategy_from_json(const std::string& text, const std::string& origin);

/// "none", "selective", "full".
std::string_view name_of(Recompute recompute);
/// "gpipe", "1f1b".
std::string_view name_of(ScheduleKind schedule);

}  // namespace switchyard::config
