#include "simulator/segment_times.hpp"

#include <algorithm>

#include "cost/compute_cost.hpp"
#include "cost/exchange.hpp"
#include "ir/ops/ops.hpp"

namespace switchyard::simulator {
namespace {

constexpr double kManyFlops = 1e15, kManyBytes = 1e12;  // of a call that fills the device

class Timer {
 public:
  Timer(const ir::StageCode& stage, i64 T, const std::vector<int>& ranks, const cluster::Hardware& hardware, const cluster::Cluster& placement)
      : stage_(stage), T_(T), ranks_(ranks), hardware_(hardware), placement_(placement) {}

  void add_to(SegmentTimes& times, const ir::Instr& instr) const {
    if (!instr.op) {
      for (const layout::Step& step : instr.steps) add(times, Activity::communication, {.fixed = exchanged(step, buffer(instr.in[0]))});
      return;
    }
    Piece slowest;
    for (int position = 0; position < stage_.lane.size(); ++position) {
      const Piece piece = computed(instr, position);
      if (total(piece) > total(slowest)) slowest = piece;
    }
    add(times, Activity::compute, slowest);
    if (instr.op->name() == "head_loss" && !buffer(instr.in[1]).layout.split[0].empty()) 
      add(times, Activity::communication, {.fixed = softmax_sums(instr)});
  }

 private:
  const ir::Buffer& buffer(int b) const { return stage_.buffers[static_cast<size_t>(b)]; }

  // To compare positions: with as many pairs as one document of T tokens has.
  double total(const Piece& piece) const { return piece.fixed + (0.5 * piece.per_pair + piece.per_square) * static_cast<double>(T_) * static_cast<double>(T_); }

  static void add(SegmentTimes& times, Activity what, Piece piece) {
    piece.what = what;
    const bool marked = (!times.awaits.empty() && times.awaits.back().before == times.pieces.size()) ||
                        (!times.releases.empty() && times.releases.back().before == times.pieces.size());
    if (times.pieces.empty() || times.pieces.back().what != what || marked) {
      times.pieces.push_back(piece);
      return;
    }
    times.pieces.back().fixed += piece.fixed;
    times.pieces.back().per_pair += piece.per_pair;
    times.pieces.back().per_square += piece.per_square;
  }

  // Products run in the type of their activations.
  DType type_of(const ir::Instr& instr) const {
    for (const int b : instr.in)
      if (buffer(b).kind != ir::ValueKind::feed) return buffer(b).type.dtype;
    return buffer(instr.out[0]).type.dtype;
  }

  Piece computed(const ir::Instr& instr, int position) const {
    const ir::LocalWork local = ir::local_work(stage_, instr, position);
    if (const cluster::OperatorTable* table = hardware_.device.measured(type_of(instr), instr.op->name()))
      if (!(local.by_documents() ? table->attention.empty() : table->calls.empty())) return measured(*table, local);
    const ir::Cost& cost = local.cost;
    const double T = static_cast<double>(T_), narrowest = std::min(cost.narrowest, T);
    const cost::Work work{.flops = cost.flops_per_token * T, .narrowest = narrowest, .bytes = cost.bytes_per_token * T + cost.bytes_fixed, .after = cost.bytes_accumulated};
    const DType type = type_of(instr);
    const double rate = cost::product_rate(hardware_.device, type, kManyFlops, narrowest).count;
    const double memory = cost.bytes_per_square == 0 ? 0 : cost.bytes_per_square / cost::memory_rate(hardware_.device, type, kManyBytes).count;
    return {.fixed = cost::call_time(hardware_.device, type, work).count,
            .per_pair = cost.flops_per_pair / rate,
            .per_square = cost.flops_per_square / rate + memory};
  }

  Piece measured(const cluster::OperatorTable& table, const ir::LocalWork& local) const {
    const double rows = static_cast<double>(T_) * local.share;
    if (local.by_documents()) {
      const cluster::MeasuredAttention attention = table.attention_of(local.columns);
      return {.fixed = attention.per_row * rows, .per_pair = attention.per_pair, .per_square = attention.per_square};
    }
    return {.fixed = table.seconds(rows, local.columns, local.work_per_row())};
  }

  double exchanged(const layout::Step& step, const ir::Buffer& sent) const {
    const bool by_tokens = ir::has_dim(sent.type, ir::kTokens);
    const i64 elements = by_tokens ? T_ / stage_.lane.size() : 1;
    std::vector<cost::Parcel> parcels;
    double copied = 0;  // most elements that a rank takes over from itself
    for (const layout::Part& part : step.parts) {
      i64 own = 0;
      for (const layout::Piece& piece : part.receives) {
        if (piece.peer == part.rank) own += piece.box.elements() * elements;
        parcels.push_back({ranks_[static_cast<size_t>(piece.peer)], ranks_[static_cast<size_t>(part.rank)],
                           piece.box.elements() * elements * size_of(sent.type.dtype), piece.add});
      }
      copied = std::max(copied, static_cast<double>(own));
    }
    const cluster::OperatorTable* copy = hardware_.device.measured(sent.type.dtype, "copy");
    const double seconds = copy && copied > 0 ? copy->seconds(copied, 1, 2.0 * static_cast<double>(size_of(sent.type.dtype))) : 0;
    return seconds + cost::exchange(hardware_, placement_, parcels).count;
  }

  // Maximum and two sums a token over the parts of the vocabulary, a chunk of tokens at a time: each a reduction and a gather.
  double softmax_sums(const ir::Instr& instr) const {
    const i64 element = size_of(buffer(instr.in[3]).type.dtype), n = static_cast<i64>(ranks_.size());
    double seconds = 0;
    for (i64 at = 0; at < T_; at += ir::HeadLoss::kChunk)
      for (const i64 rows : {1, 2}) {
        const i64 bytes = rows * std::min(ir::HeadLoss::kChunk, T_ - at) * element / n;
        std::vector<cost::Parcel> parcels;
        for (const int from : ranks_)
          for (const int to : ranks_) parcels.push_back({from, to, bytes});
        seconds += 2 * cost::exchange(hardware_, placement_, parcels).count;
      }
    return seconds;
  }

  const ir::StageCode& stage_;
  const i64 T_;
  const std::vector<int>& ranks_;
  const cluster::Hardware& hardware_;
  const cluster::Cluster& placement_;
};

}  // namespace

SegmentTimes segment_times(const ir::StageCode& stage, const ir::Segment& segment, i64 T, const std::vector<int>& ranks,
                           const cluster::Hardware& hardware, const cluster::Cluster& placement) {
  SegmentTimes times;
  const Timer timer(stage, T, ranks, hardware, placement);
  size_t await = 0, release = 0;
  for (size_t i = 0; i < segment.code.size(); ++i) {
    for (; await < segment.awaits.size() && segment.awaits[await].instr == static_cast<int>(i); ++await)
      times.awaits.push_back({times.pieces.size(), segment.awaits[await].unit});
    timer.add_to(times, segment.code[i]);
    for (; release < segment.releases.size() && segment.releases[release].instr == static_cast<int>(i); ++release)
      times.releases.push_back({times.pieces.size(), segment.releases[release].unit});
  }
  return times;
}

}  // namespace switchyard::simulator
