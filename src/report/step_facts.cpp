#include "report/step_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "compiler/ring_keys.hpp"
#include "compiler/wire.hpp"
#include "ir/statistic_groups.hpp"
#include "switching/bounds.hpp"

namespace switchyard::report {
namespace {

using compiler::CompiledStrategy;
using compiler::Plans;

const CompiledStrategy& strategy_of(const Plans& plans, const batch::StepPlan& plan, int phase) {
  return plans.strategies()[static_cast<size_t>(plan.phases[static_cast<size_t>(phase)].strategy)];
}

i64 number_of_documents(const batch::MicroBatch& mb) {
  std::set<i64> documents;
  for (const auto& shard : mb.shard)
    for (const batch::Piece& piece : shard)
      if (piece.doc >= 0) documents.insert(piece.doc);
  return std::ssize(documents);
}

class LinkCounter {
 public:
  LinkCounter(const batch::StepPlan& plan, const Plans& plans)
      : plan_(plan),
        plans_(plans),
        uses_{{"inside stages"},
              {"between stages"},
              {"parameters to the next strategy"},
              {"gradients to home"},
              {"for single runs (depth, ZeRO-2 and 3)"},
              {"keys and values between ring ranks"}} {}

  void add(const ir::Task& task) {
    switch (task.kind()) {
      case ir::TaskKind::run:
        return add_segment(task);
      case ir::TaskKind::send:
        return add_messages(uses_[1], task);
      case ir::TaskKind::move:
        return add_messages(uses_[2], task);
      case ir::TaskKind::reduce:
      case ir::TaskKind::broadcast:
        return add_messages(uses_[3], task);
      case ir::TaskKind::gather:
      case ir::TaskKind::reduce_scatter:
        return add_messages(uses_[4], task);
      default:
        return;
    }
  }
  std::vector<LinkUse> uses() && { return std::move(uses_); }

 private:
  void add_bytes(LinkUse& use, int from, int to, i64 bytes) {
    const cluster::Link link = plans_.cluster().link(from, to);
    if (link == cluster::Link::intra_host) use.intra += bytes;
    if (link == cluster::Link::inter_host) use.inter += bytes;
  }

  void add_messages(LinkUse& use, const ir::Task& task) {
    const DType type = ir::type_of(task.kind(), plans_.graph().precision());
    for (const layout::Msg& m : task.messages)
      add_bytes(use, m.src, m.dst, compiler::wire_bytes(task, m, type, plans_.cluster()));
  }

  void add_segment(const ir::Task& task) {
    const batch::MicroBatch& mb =
        plan_.phases[static_cast<size_t>(task.phase)]
            .replica[static_cast<size_t>(task.replica())][static_cast<size_t>(task.micro_batch())];
    const CompiledStrategy& strategy = strategy_of(plans_, plan_, task.phase);
    const ir::StageCode& stage =
        strategy.groups[static_cast<size_t>(task.group())].stages[static_cast<size_t>(task.stage())];
    const ir::Segment& segment = stage.segment(task.pass());
    const ir::PieceRange range = ir::range_of(segment, task.piece());
    const compiler::RingKeys keys = compiler::ring_keys(strategy, task.replica(), task.stage(), mb, plans_.cluster());
    const std::vector<std::vector<int>>& ranks = keys.ranks;
    const config::Compression& compression = strategy.strategy.compression;
    for (size_t i = range.first; i < range.end; ++i) {
      const ir::Instr& instr = segment.code[i];
      for (size_t ring = 0; ring < ranks.size(); ++ring)
        if (instr.op)
          add_statistic_sums(ranks[ring], stage, instr, mb.T[ring]);
        else
          for (const layout::Step& step : instr.exchanges[ir::pattern_of(stage, ranks[ring], plans_.cluster())]->steps)
            add_step(ranks[ring], stage, stage.buffers[static_cast<size_t>(instr.in[0])], step, mb.T[ring],
                     compiler::rule_of(compression, instr));
      add_keys(keys, stage, instr, compression.rule(compression.keys));
    }
  }

  void add_keys(const compiler::RingKeys& keys, const ir::StageCode& stage, const ir::Instr& instr,
                const codecs::Rule& encoding) {
    for (size_t position = 0; position < keys.exchanges.size(); ++position) {
      const ir::KeyBytes bytes = ir::key_bytes(stage, instr, static_cast<int>(position));
      if (bytes.all() == 0) continue;
      for (const std::vector<batch::KeyMessage>& round : keys.exchanges[position].rounds)
        for (const batch::KeyMessage& message : round) {
          const int from = keys.ranks[static_cast<size_t>(message.from)][position],
                    to = keys.ranks[static_cast<size_t>(message.to)][position];
          const auto add = [&](DType type, int sender, int receiver) {
            add_bytes(uses_.back(), sender, receiver,
                      compiler::key_wire_bytes(encoding, type, message.count, bytes.columns, sender, receiver,
                                               plans_.cluster()));
          };
          if (bytes.values > 0) add(bytes.type, from, to);
          if (bytes.gradients > 0) add(bytes.gradient_type, to, from);
        }
    }
  }

  void add_step(const std::vector<int>& ranks, const ir::StageCode& stage, const ir::Buffer& sent,
                const layout::Step& step, i64 T, const codecs::Rule& encoding) {
    const bool by_tokens = std::ranges::count(sent.type.shape.size, ir::kTokens) > 0;
    const i64 times = by_tokens ? ir::token_unit(stage.replica, T) : 1;
    for (const layout::Part& part : step.parts)
      for (const layout::Piece& piece : part.sends) {
        const int from = ranks[static_cast<size_t>(part.rank)], to = ranks[static_cast<size_t>(piece.peer)];
        add_bytes(
            uses_[0], from, to,
            compiler::wire_bytes(encoding, sent.type.dtype, piece.box.elements() * times, from, to, plans_.cluster()));
      }
  }

  // What operators sum inside: each statistic of a token is reduced and gathered.
  void add_statistic_sums(const std::vector<int>& ranks, const ir::StageCode& stage, const ir::Instr& instr, i64 T) {
    const auto sums = ir::statistic_sums(stage, instr);
    if (!sums) return;
    const ir::StatisticGroups of = ir::statistic_groups(stage, instr, *sums);
    const i64 per_token = std::accumulate(sums->per_token.begin(), sums->per_token.end(), i64{0});
    const i64 bytes = 2 * per_token * of.units * ir::token_unit(stage.replica, T) * size_of(of.dtype);
    for (const std::vector<int>& group : of.groups)
      for (const int from : group)
        for (const int to : group)
          add_bytes(uses_[0], ranks[static_cast<size_t>(from)], ranks[static_cast<size_t>(to)],
                    bytes / std::ssize(group));
  }

  const batch::StepPlan& plan_;
  const Plans& plans_;
  std::vector<LinkUse> uses_;
};

// What the tasks of this kind and phase (-1: of the whole step) send.
Matrix matrix_of(std::string title, const ir::Program& program, ir::TaskKind kind, int phase, const Plans& plans) {
  const cluster::Cluster& cluster = plans.cluster();
  const DType type = ir::type_of(kind, plans.graph().precision());
  Matrix matrix{.title = std::move(title), .by_host = cluster.ranks() > kMostMatrixRanks};
  matrix.size = matrix.by_host ? cluster.hosts() : cluster.ranks();
  const auto place = [&](int rank) { return matrix.by_host ? cluster.host[static_cast<size_t>(rank)] : rank; };
  std::map<std::pair<int, int>, i64> cells;
  for (const ir::Task& task : program.tasks) {
    if (task.kind() != kind || task.phase != phase) continue;
    for (const layout::Msg& m : task.messages) {
      if (m.src == m.dst) continue;
      const i64 bytes = compiler::wire_bytes(task, m, type, cluster);
      cells[{place(m.src), place(m.dst)}] += bytes;
      (cluster.link(m.src, m.dst) == cluster::Link::inter_host ? matrix.inter : matrix.intra) += bytes;
    }
  }
  for (const auto& [pair, bytes] : cells) matrix.cells.push_back({pair.first, pair.second, bytes});
  return matrix;
}

}  // namespace

std::vector<PhaseLabel> phase_labels(const batch::StepPlan& plan, const Plans& plans) {
  std::vector<PhaseLabel> labels;
  for (size_t phase = 0; phase < plan.phases.size(); ++phase) {
    const CompiledStrategy& compiled = strategy_of(plans, plan, static_cast<int>(phase));
    PhaseLabel& label = labels.emplace_back();
    label.strategy = compiled.strategy.name;
    for (const config::Group& group : compiled.strategy.groups) {
      std::vector<std::string>& layers = label.layers.emplace_back();
      for (const config::Stage& stage : group.stages)
        layers.push_back(stage.end_layer - stage.first_layer > 1
                             ? fmt::format("{}-{}", stage.first_layer, stage.end_layer - 1)
                         : stage.end_layer > stage.first_layer ? std::to_string(stage.first_layer)
                                                               : "none");
    }
    for (const compiler::Replica& replica : compiled.replicas) label.group.push_back(replica.group);
    for (const std::vector<batch::MicroBatch>& replica : plan.phases[phase].replica) {
      std::vector<MicroBatchLabel>& micro_batches = label.micro_batches.emplace_back();
      for (const batch::MicroBatch& mb : replica) micro_batches.push_back({number_of_documents(mb), batch::tokens(mb)});
    }
  }
  return labels;
}

std::vector<BucketRow> bucket_rows(const config::Job& job, const batch::StepPlan& plan, const Plans& plans,
                                   const std::vector<i64>& lengths) {
  std::vector<BucketRow> rows;
  for (size_t b = 0; b < job.buckets.size(); ++b) {
    const CompiledStrategy& strategy = plans.strategies()[b];
    rows.push_back({.strategy = strategy.strategy.name,
                    .max_length = job.buckets[b].max_length,
                    .ranks = static_cast<int>(strategy.strategy.ranks().size()),
                    .replicas = static_cast<int>(strategy.replicas.size())});
  }
  const std::vector<batch::BucketSpec> all = compiler::bucket_specs(job, plans);
  const std::vector<batch::BucketSpec> used = batch::used_buckets(plan, all);
  i64 longer_than = 0;
  const std::vector<batch::BucketSpec>& ranges = job.run.choose_buckets ? used : all;
  for (auto bucket = ranges.rbegin(); bucket != ranges.rend(); ++bucket) {
    rows[static_cast<size_t>(bucket->strategy)].min_length = longer_than + 1;
    longer_than = bucket->max_length;
  }
  for (const i64 length : lengths) {
    BucketRow& row = rows[static_cast<size_t>(used[static_cast<size_t>(batch::bucket_of(length, used))].strategy)];
    ++row.documents;
    row.tokens += length;
  }
  for (const batch::PhasePlan& phase : plan.phases)
    for (const auto& replica : phase.replica)
      for (const batch::MicroBatch& mb : replica) {
        ++rows[static_cast<size_t>(phase.strategy)].micro_batches;
        rows[static_cast<size_t>(phase.strategy)].computed += batch::tokens(mb);
      }
  return rows;
}

Documents documents_of(const config::Job& job, const batch::StepPlan& plan, const Plans& plans,
                       const std::vector<i64>& lengths) {
  Documents documents{.step = plan.step + 1, .lengths = lengths};
  documents.phases =
      batch::document_places(plan, lengths, compiler::bucket_specs(job, plans), compiler::work_model(job.model.config));
  for (size_t phase = 0; phase < plan.phases.size(); ++phase)
    documents.strategies.push_back(strategy_of(plans, plan, static_cast<int>(phase)).strategy.name);
  return documents;
}

void add_times(std::vector<BucketRow>& rows, const batch::StepPlan& plan, const Timeline& timeline) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  for (size_t phase = 0; phase < plan.phases.size(); ++phase) {
    const std::string prefix = fmt::format("run phase {} ", phase);
    double begin[2] = {kNever, kNever}, end[2] = {0, 0};
    for (const Track& track : timeline.tracks)
      for (const Span& span : track.spans) {
        if (span.kind == Kind::waiting || !timeline.names[static_cast<size_t>(span.name)].starts_with(prefix)) continue;
        begin[track.measured] = std::min(begin[track.measured], span.begin);
        end[track.measured] = std::max(end[track.measured], span.end);
      }
    BucketRow& row = rows[static_cast<size_t>(plan.phases[phase].strategy)];
    if (end[0] > 0) row.predicted_seconds = end[0] - begin[0];
    if (end[1] > 0) row.measured_seconds = end[1] - begin[1];
  }
}

std::vector<LinkUse> link_uses(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans) {
  LinkCounter counter(plan, plans);
  for (const ir::Task& task : program.tasks) counter.add(task);
  return std::move(counter).uses();
}

std::vector<Matrix> switch_matrices(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans) {
  std::vector<Matrix> matrices;
  const auto phases = static_cast<int>(plan.phases.size());
  for (int phase = 0, before = -1; phase < phases; ++phase) {
    const CompiledStrategy& strategy = strategy_of(plans, plan, phase);
    const std::string from = before < 0 ? "home" : plans.strategies()[static_cast<size_t>(before)].strategy.name;
    Matrix& moves =
        matrices.emplace_back(matrix_of(fmt::format("parameters: {} \u2192 {}", from, strategy.strategy.name), program,
                                        ir::TaskKind::move, phase, plans));
    if (plans.cluster().hosts() > 1)
      moves.inter_bound = switching::inter_host_bound_bytes(
          before < 0 ? std::vector<layout::ShardMap>{} : plans.strategies()[static_cast<size_t>(before)].maps.stored,
          plans.home(), strategy.maps.stored, plans.cluster(), size_of(plans.graph().precision().compute));
    before = plan.phases[static_cast<size_t>(phase)].strategy;
  }
  for (int phase = 0; phase < phases; ++phase)
    matrices.push_back(
        matrix_of(fmt::format("gradients: {} \u2192 home", strategy_of(plans, plan, phase).strategy.name), program,
                  ir::TaskKind::reduce, phase, plans));
  if (!plans.broadcast().units.empty())
    matrices.push_back(matrix_of("gradients: home \u2192 its copies", program, ir::TaskKind::broadcast, -1, plans));
  return matrices;
}

}  // namespace switchyard::report
