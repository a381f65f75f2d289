// A strategy: which ranks compute which layers, and how each parameter is split among them. Plain values; a strategy is
// also a JSON file that the program prints and a person may edit (docs/strategy-format.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/key_passing.hpp"
#include "base/units.hpp"
#include "codecs/rule.hpp"
#include "layout/axes.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::config {

using layout::StageAxis;
using layout::StageMesh;

/// One position of a group's pipeline: layers [first_layer, end_layer) of the transformer. The embedding goes with the
/// first one, final norm and head with the last. ranks: as many as the mesh has, in its order.
struct Stage {
  std::vector<int> ranks;
  StageMesh mesh;
  int first_layer = 0, end_layer = 0;
  bool operator==(const Stage&) const = default;
};

/// Equal pipelines (replicas), one for each place on data and depth, whose sizes all stages have in common. Unequal
/// pipelines are several groups. With chunks the ranks come again: position c * P + s of P * chunks belongs to those of
/// stage s (schedule::Placement).
struct Group {
  std::vector<Stage> stages;
  int replicas() const { return stages.empty() ? 1 : stages.front().mesh.replicas(); }
  bool operator==(const Group&) const = default;
};

/// How a stage cuts a parameter, where it differs from the default: dims in order, over the axes that cut weights. A
/// cut into `parts` takes the next ones, from the outermost on; a cut by an axis the next factor `parts` of that axis,
/// or (0) all that is left of it. Over what no cut takes, ranks hold copies. All cuts of a parameter name axes, or
/// none.
struct Cut {
  int dim = 0, parts = 1;
  std::optional<layout::StageAxis> axis{};
  bool operator==(const Cut&) const = default;
};
struct ParamSplit {
  std::string parameter;  // Hugging Face name; '*' matches any run of characters
  std::vector<Cut> cuts;
  bool operator==(const ParamSplit&) const = default;
};

/// Forward work that the backward pass repeats instead of keeping what it made: none; what tensor parallel ranks
/// gathered; that, and attention; all of a layer.
enum class Recompute { none, gathers, selective, full };
/// How a strategy's documents come into micro-batches. balanced: replicas and micro-batches get equal work. stream:
/// rows in the data's order, dealt to the replicas in turn, each document padded for context parallelism; other
/// programs' usual default, to compare with (batch::BucketSpec).
enum class Packing { balanced, stream };
/// The parts into which ring attention cuts documents: each into as many as suits it, or all into equally many.
enum class RingDegree { document, uniform };
/// The links whose messages may be encoded.
enum class CompressedLinks { all, hosts };

/// Whether a rank keeps what encoding lost of its gradients and adds it to the next ones (Karimireddy et al., arXiv
/// 1901.09847). automatic: with codecs that send only the largest elements.
enum class ErrorFeedback { automatic, on, off };

/// How messages are encoded, by what they carry: gradients of runs and phases to their owners; activations and their
/// gradients between pipeline stages, those that the ranks of a stage exchange for tensor parallelism, and those that
/// they exchange where ulysses goes from tokens to heads or back; keys and values of attention, and their gradients,
/// between ring ranks; parameters that are gathered for runs; parameters that move to the strategy in a hot switch, and
/// sums of gradients on their way to home's further copies, which must be equal on all ranks. hosts: only messages
/// between hosts are encoded. smallest: those of fewer bytes are not.
struct Compression {
  codecs::Codec gradients = codecs::Codec::none, pipeline = codecs::Codec::none, activations = codecs::Codec::none,
                ulysses = codecs::Codec::none, keys = codecs::Codec::none, gathers = codecs::Codec::none,
                switches = codecs::Codec::none;
  ErrorFeedback error_feedback = ErrorFeedback::automatic;
  CompressedLinks links = CompressedLinks::all;
  Bytes smallest{4096};
  bool operator==(const Compression&) const = default;
  codecs::Rule rule(codecs::Codec of_role) const { return {of_role, smallest.count, links == CompressedLinks::hosts}; }
  codecs::Rule rule_of_gradients() const;
  /// Whether a codec is for anything that the ranks of a stage exchange within runs.
  bool encodes_exchanges() const { return activations != codecs::Codec::none || ulysses != codecs::Codec::none; }
};

enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zero_bubble, zb_v, zeropp };

/// Settings of a strategy besides the layers and ranks of its stages.
struct StrategySettings {
  Recompute recompute = Recompute::gathers;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int chunks = 0;          // chunks of the model on each stage; 0: 2 for interleaved, zb_v and zeropp, else 1
  int activation_cap = 0;  // zero_bubble, zb_v: most activations a stage holds, of a chunk and micro-batch; 0: as 1F1B
  bool sequence_parallel = true;  // activations between blocks cut on tokens by all axes of a replica
  i64 micro_batch_tokens = 0;     // most tokens of a micro-batch; 0: the job's bucket length
  i64 micro_batch_sequences = 0;  // most documents of a micro-batch; 0: any number
  int zero = 1;  // ZeRO stage (arXiv 1910.02054). Optimizer state: 0 on every rank that stores the parameter, otherwise
                 // once; 2: gradients, too, are cut over the ranks that would hold copies; 3: and so are parameters
  bool paired = false;  // micro-batches run in twos: while one exchanges within a stage, the other one computes
  int every = 1;        // so many micro-batches share what is gathered and reduced for their runs (depth, ZeRO-3)
  Packing packing = Packing::balanced;
  RingDegree ring_degree = RingDegree::document;  // packing stream: always uniform, all ring ranks
  KeyPassing exchange = KeyPassing::gather;       // how keys and values go between ring ranks
  Compression compression{};
  bool operator==(const StrategySettings&) const = default;
};

struct Strategy : StrategySettings {
  std::string name{};  // what the user wrote, e.g. "1,4,2"
  std::vector<Group> groups{};
  std::vector<ParamSplit> splits{};
  schedule::Schedule order{};  // written by hand, replaces `schedule`; empty: none

  int chunk_count() const;
  schedule::Placement placement() const;  // path of the chunks
  bool splits_gradients() const;          // W apart from B
  bool gathers() const;                   // parameters for single runs
  bool has(StageAxis axis) const;         // whether a stage has more than one place on it
  int replicas() const;                   // pipelines over all groups
  std::vector<int> ranks() const;         // used ranks, ascending, each once
  bool operator==(const Strategy&) const = default;
};

/// The order of ranks. data: each stage's ranks follow each other, one stage after the other; pipeline: inside each
/// place on data they do.
enum class Inside { data, pipeline };

/// Sizes of a strategy's axes and its number of pipeline stages, each at least 1, and the order of its ranks.
/// head_layers: layers as which the head counts when layers are split over the positions of the pipeline.
struct Degrees {
  i64 dp = 1, tp = 1, pp = 1, ring = 1, ulysses = 1, depth = 1, inner = 1;
  Inside inside = Inside::data;
  i64 head_layers = 0;
  bool operator==(const Degrees&) const = default;
};
/// The degrees with the keys by which a strategy's text names them, in its order. axis: the axis of stages that each is
/// the size of; nothing: the number of stages. factor_of: the degree that it is a factor of, whose own axis has what is
/// left; null: none.
struct DegreeKey {
  std::string_view key;
  i64 Degrees::*value;
  std::optional<StageAxis> axis;
  i64 Degrees::*factor_of = nullptr;
};
std::span<const DegreeKey> degree_keys();
/// The degrees of a stage's axes; pp is 1.
Degrees degrees_of(const StageMesh& mesh);
/// Product of all degrees that aren't factors of others, at most 2^62.
i64 ranks_of(const Degrees& degrees);
/// The sum over groups on following ranks, at most 2^62.
i64 ranks_of(std::span<const Degrees> groups);

/// What a strategy of these groups takes from settings that it shares with others: those of rings only if it has one.
StrategySettings shared_settings(StrategySettings settings, std::span<const Degrees> groups);

/// A strategy's text: "dp,tp,pp" as three numbers, or "key=value,..." in any order: dp, tp, pp, ring, ulysses, depth
/// and inner, and the settings of a strategy by the names that they have in a job file. Keys that are left out have the
/// values of `defaults`, degrees 1. Groups of unlike pipelines are joined by "+"; the first one has the settings, the
/// others degrees, the order of their ranks and head_layers. UserError names the text, the group, the key and what it
/// may be; a key may come once in a group.
struct StrategyText {
  std::vector<Degrees> groups;  // at least one
  StrategySettings settings;
};
StrategyText read_strategy_text(std::string_view text, const StrategySettings& defaults = {});
/// The degrees of groups without settings.
std::vector<Degrees> read_groups_text(std::string_view text);
/// The text without defaults, which reads back as the same: "2,4,2" where only dp, tp and pp differ from them,
/// otherwise keys in a fixed order, such as "dp=2,ulysses=4,schedule=zb-v"; groups are joined by " + ".
std::string to_text(std::span<const Degrees> groups, const StrategySettings& settings = {});
std::string to_text(const Degrees& degrees, const StrategySettings& settings = {});

/// Number of layers of each position of a pipeline (pp times chunks), at least one: as even as possible, where the head
/// counts as `head_layers` of the last one. What the positions do not divide makes the first ones have one more.
std::vector<int> layers_of_positions(int positions, i64 layers, i64 head_layers);

/// The strategy of a text on the first ranks of the run, group after group, with `layers` split as layers_of_positions
/// says in each. A group's ranks are numbered in the order of Inside, those of a stage in a replica in the order of the
/// axes. UserError unless the ranks suffice, inner divides tp, each position has a layer, and degrees are positive.
Strategy strategy_from_spec(std::string_view spec, int ranks, i64 layers, const StrategySettings& settings = {});
/// The same for a strategy that lacks its groups.
void cut_by_degrees(Strategy& strategy, std::span<const Degrees> groups, int ranks, i64 layers);
struct ModelConfig;
/// Whether the ranks of a stage can divide the heads of a model: queries evenly or not, keys and values by leading
/// factors of the axes.
bool divides_heads(const StageMesh& mesh, const ModelConfig& model);

/// Checks against a model and a rank count; UserError naming strategy, stage and remedy: ranks out of range or used
/// twice (except by chunks), layers not covered once in order, other ranks than the mesh has, stages of unlike sizes
/// outside the code, ring ranks of attention that stores its scores, heads that can't be divided among the ranks, parts
/// of a split parameter that divide no stage's weight axes, chunks or a cap that the schedule does not have, a
/// hand-written order for other stages.
void validate(const Strategy& strategy, const ModelConfig& model, int ranks);

/// A page of JSON with a line per stage; docs/strategy-format.md explains it.
std::string to_json(const Strategy& strategy);
/// The strategy in a JSON text of any content and size: memory stays proportional to it. origin: its file name in
/// messages. UserError names the JSON path, and the nearest known key for an unknown one. Whether it fits a model:
/// validate.
Strategy strategy_from_json(const std::string& text, const std::string& origin);

/// "data", "pipeline".
std::string_view name_of(Inside inside);
/// "none", "gathers", "selective", "full".
std::string_view name_of(Recompute recompute);
/// "balanced", "stream".
std::string_view name_of(Packing packing);
/// "document", "uniform".
std::string_view name_of(RingDegree degree);
/// "all", "hosts".
std::string_view name_of(CompressedLinks links);
/// "auto", "on", "off".
std::string_view name_of(ErrorFeedback feedback);
/// "gpipe", "1f1b", "interleaved", "zero-bubble", "zb-v", "zeropp".
std::string_view name_of(ScheduleKind schedule);

}  // namespace switchyard::config
