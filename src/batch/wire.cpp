#include "batch/wire.hpp"

#include <cstdint>
#include <limits>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

constexpr std::byte kVersion{2};

class Writer {
 public:
  void put(i64 value) {
    auto zigzag = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
    for (; zigzag >= 0x80; zigzag >>= 7) bytes_.push_back(static_cast<std::byte>(zigzag | 0x80));
    bytes_.push_back(static_cast<std::byte>(zigzag));
  }
  void put_size(std::size_t size) { put(static_cast<i64>(size)); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_{kVersion};
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {
    if (bytes.empty() || bytes.front() != kVersion)
      cluster_error("a step plan of {} bytes has an unknown version. Start every rank with the same program.",
                    bytes.size());
  }
  i64 get() {
    std::uint64_t zigzag = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("is cut short");
      const auto byte = std::to_integer<std::uint64_t>(bytes_[at_++]);
      zigzag |= (byte & 0x7f) << shift;
      if (byte < 0x80) return static_cast<i64>(zigzag >> 1) ^ -static_cast<i64>(zigzag & 1);
    }
    fail("has a number of more than 64 bits");
  }
  int get_int() {
    const i64 value = get();
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
      fail("has a number out of range");
    return static_cast<int>(value);
  }
  // Every element takes a byte or more, which bounds what a damaged count may allocate.
  std::size_t get_size() {
    const i64 value = get();
    if (value < 0 || static_cast<std::uint64_t>(value) > bytes_.size() - at_) fail("is cut short");
    return static_cast<std::size_t>(value);
  }
  void finish() const {
    if (at_ != bytes_.size()) fail("goes on after its end");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    cluster_error("a step plan of {} bytes {} (at byte {}). The message from rank 0 is damaged; see its log.",
                  bytes_.size(), what, at_);
  }
  std::span<const std::byte> bytes_;
  std::size_t at_ = 1;
};

void put(Writer& out, const MicroBatch& micro_batch) {
  check(micro_batch.T.size() == micro_batch.shard.size(), "a micro-batch of {} tokens on {} ring ranks", micro_batch.T,
        micro_batch.shard.size());
  out.put_size(micro_batch.T.size());
  for (std::size_t rank = 0; rank < micro_batch.T.size(); ++rank) {
    out.put(micro_batch.T[rank]);
    out.put_size(micro_batch.shard[rank].size());
    for (const Piece& piece : micro_batch.shard[rank]) {
      out.put(piece.doc);
      out.put(piece.first);
      out.put(piece.count);
      out.put(piece.stride);
    }
  }
}

MicroBatch get_micro_batch(Reader& in) {
  MicroBatch micro_batch;
  micro_batch.T.resize(in.get_size());
  micro_batch.shard.resize(micro_batch.T.size());
  for (std::size_t rank = 0; rank < micro_batch.T.size(); ++rank) {
    micro_batch.T[rank] = in.get();
    micro_batch.shard[rank].resize(in.get_size());
    for (Piece& piece : micro_batch.shard[rank]) {
      piece.doc = in.get();
      piece.first = in.get_int();
      piece.count = in.get_int();
      piece.stride = in.get_int();
    }
  }
  return micro_batch;
}

}  // namespace

std::vector<std::byte> encode(const StepPlan& plan) {
  Writer out;
  out.put(plan.step);
  out.put(plan.valid_tokens);
  out.put_size(plan.phases.size());
  for (const PhasePlan& phase : plan.phases) {
    out.put(phase.strategy);
    out.put_size(phase.replica.size());
    for (const std::vector<MicroBatch>& replica : phase.replica) {
      out.put_size(replica.size());
      for (const MicroBatch& micro_batch : replica) put(out, micro_batch);
    }
  }
  return out.take();
}

StepPlan decode(std::span<const std::byte> bytes) {
  Reader in(bytes);
  StepPlan plan;
  plan.step = in.get();
  plan.valid_tokens = in.get();
  plan.phases.resize(in.get_size());
  for (PhasePlan& phase : plan.phases) {
    phase.strategy = in.get_int();
    phase.replica.resize(in.get_size());
    for (std::vector<MicroBatch>& replica : phase.replica) {
      const std::size_t micro_batches = in.get_size();
      for (std::size_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
        replica.push_back(get_micro_batch(in));
    }
  }
  in.finish();
  return plan;
}

}  // namespace switchyard::batch
